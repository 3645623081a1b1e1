"""How a line of a settlement report becomes rows of the provider's books. Pure; a line that cannot be says why.

A mapping is a TOML file; the ones for Stripe's own reports are in ``reports/``. Amounts are converted exactly, with
``Decimal`` and the currency's own number of decimals, and never rounded.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from makegood.errors import InputError
from makegood.reconciliation.source import COLLECTIONS, Row

REPORTS = Path(__file__).with_name("reports")
AMOUNTS = frozenset(("amount_minor", "captured_minor", "fee_minor", "net_minor"))
TIMES = frozenset(("created_at", "capture_before"))
TRUTHS = frozenset(("livemode", "captures_open"))
COMMON = frozenset(("id", "amount_minor", "currency", "created_at"))
FIELDS: Mapping[str, frozenset[str]] = {
    "charges": COMMON
    | {"payment_ref", "order_ref", "customer_ref", "status", "captured_minor", "livemode", "capture_before"}
    | {"captures_open"},
    "refunds": COMMON | {"charge_id", "compensation_ref", "status"},
    "disputes": COMMON | {"charge_id", "status"},
    "balance_transactions": COMMON | {"kind", "source_ref", "payout_ref", "fee_minor", "net_minor"},
    "payouts": COMMON | {"status"},
}
NEEDED: Mapping[str, frozenset[str]] = {
    "charges": COMMON | {"status"},
    "refunds": COMMON | {"charge_id", "status"},
    "disputes": COMMON | {"charge_id", "status"},
    "balance_transactions": COMMON | {"kind", "fee_minor"},
    "payouts": COMMON | {"status"},
}
KNOWN = frozenset(("provider", "units", "decimal", "thousands", "time", "timezone", "delimiter", "encoding", "rows"))
KNOWN_IN_ROWS = frozenset(("collection", "only_new", "derived", "when", "negate", "columns", "constants", "words"))
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

Cell = str | int | Decimal | datetime | date | bool | None


class LineFault(Exception):
    """A line that cannot be taken; the message says why."""


@dataclass(frozen=True)
class RowRule:
    """One row of one collection from a line, where the line is one that ``when`` wants."""

    collection: str
    columns: Mapping[str, Sequence[tuple[str, bool]]]
    """Per field: the columns that are tried in turn, and whether each may be missing from the file."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    when: Mapping[str, Sequence[str]] = field(default_factory=dict)
    negate: Sequence[str] = ()
    only_new: bool = False
    derived: bool = False

    def missing_from(self, header: Sequence[str]) -> list[str]:
        present = set(header)
        wanted = [tried for tried in self.columns.values() if not tried[-1][1]]
        gone = [tried[-1][0] for tried in wanted if not any(name in present for name, _ in tried)]
        return gone + [name for name in self.when if name not in present]


@dataclass(frozen=True)
class ReportMapping:
    name: str
    rules: Sequence[RowRule]
    provider: str | None = None
    units: str = "major"
    decimal: str = "."
    thousands: str = ""
    time: str | None = None
    timezone: str = "UTC"
    delimiter: str = ","
    encoding: str = "utf-8"

    def missing_from(self, header: Sequence[str]) -> list[str]:
        """Columns that the file would have to have; each once."""
        return list(dict.fromkeys(name for rule in self.rules for name in rule.missing_from(header)))

    def columns_of(self, header: Sequence[str]) -> list[str]:
        """The file's columns that are used."""
        tried = {name for rule in self.rules for some in rule.columns.values() for name, _ in some}
        tried |= {name for rule in self.rules for name in rule.when}
        return [name for name in header if name in tried]

    def money_columns(self) -> set[str]:
        return {name for rule in self.rules for at, some in rule.columns.items() if at in AMOUNTS for name, _ in some}


@dataclass(frozen=True)
class Item:
    """One row that a line gave, and how it is put."""

    collection: str
    row: Row
    only_new: bool
    derived: bool


def read_line(
    mapping: ReportMapping, cells: Mapping[str, Cell], exponents: Mapping[str, int], *, livemode: bool
) -> list[Item]:
    """The rows of one line; LineFault when it cannot be taken. A line that no rule wants gives none."""
    wanted = [rule for rule in mapping.rules if _wants(rule, cells)]
    return [
        Item(rule.collection, _row(mapping, rule, cells, exponents, livemode), rule.only_new, rule.derived)
        for rule in wanted
    ]


def _wants(rule: RowRule, cells: Mapping[str, Cell]) -> bool:
    return all(str(cells.get(name) or "") in allowed for name, allowed in rule.when.items())


def _row(
    mapping: ReportMapping, rule: RowRule, cells: Mapping[str, Cell], exponents: Mapping[str, int], livemode: bool
) -> Row:
    found: dict[str, Cell] = {name: _pick(tried, cells) for name, tried in rule.columns.items()}
    found |= {name: value for name, value in rule.constants.items() if found.get(name) in (None, "")}
    currency = str(found.get("currency") or "").strip().upper()
    if currency not in exponents:
        raise LineFault(f"the currency is {currency or 'empty'!r}, which does not exist")
    row: Row = {"currency": currency}
    for name, cell in found.items():
        value = _convert(mapping, rule, name, cell, exponents[currency], currency)
        if value is not None:
            row[name] = value
    for name in rule.negate:
        row[name] = -row[name]
    _check_id(row)
    return _complete(rule, row, livemode)


def _pick(tried: Sequence[tuple[str, bool]], cells: Mapping[str, Cell]) -> Cell:
    """The first of the columns that says something."""
    return next((cells[name] for name, _ in tried if cells.get(name) not in (None, "")), None)


def _convert(mapping: ReportMapping, rule: RowRule, name: str, cell: Cell, exponent: int, currency: str) -> Any:
    if cell is None or cell == "":
        if name in NEEDED[rule.collection] and name != "currency":
            raise LineFault(f"{_shown(rule, name)} is empty")
        return None
    if name in AMOUNTS:
        decimals = 0 if mapping.units == "minor" else exponent
        return read_amount(cell, decimals, currency, mapping.decimal, mapping.thousands)
    if name in TIMES:
        return read_time(cell, mapping.time, mapping.timezone)
    if name in TRUTHS:
        return _read_truth(cell)
    return currency if name == "currency" else _read_word(rule, name, str(cell).strip())


def _shown(rule: RowRule, name: str) -> str:
    tried = rule.columns.get(name)
    return " or ".join(column for column, _ in tried) if tried else name


def _read_word(rule: RowRule, name: str, text: str) -> str:
    words = rule.words.get(name)
    if words is None:
        return text
    if text not in words:
        raise LineFault(f"{_shown(rule, name)} is {text[:60]!r}, which the mapping has no word for")
    return words[text]


def _check_id(row: Row) -> None:
    if str(row.get("id", "")).startswith(FORMULA_STARTS):
        raise LineFault(f"the id is {str(row['id'])[:60]!r}, which is a spreadsheet's formula and no id")


def _complete(rule: RowRule, row: Row, livemode: bool) -> Row:
    """What a report leaves to be understood."""
    if rule.collection == "charges":
        row.setdefault("captured_minor", row["amount_minor"] if row["status"] == "succeeded" else 0)
        row.setdefault("livemode", livemode)
    if rule.collection == "balance_transactions":
        row.setdefault("net_minor", row["amount_minor"] - row["fee_minor"])
    return row


def read_amount(cell: Cell, exponent: int, currency: str, decimal: str = ".", thousands: str = "") -> int:
    """An amount as a whole number of minor units, exactly; LineFault where it is not one."""
    number = (
        cell
        if isinstance(cell, int | Decimal) and not isinstance(cell, bool)
        else _read_number(str(cell).strip(), decimal, thousands)
    )
    minor = Decimal(number).scaleb(exponent)
    if minor != minor.to_integral_value():
        raise LineFault(f"the amount {cell} has more decimals than {currency} ({exponent})")
    if abs(minor) >= 10**18:
        raise LineFault(f"the amount {cell} is larger than any")
    return int(minor)


def _read_number(text: str, decimal: str, thousands: str) -> Decimal:
    point, group = re.escape(decimal), re.escape(thousands)
    grouped = rf"|[0-9]{{1,3}}(?:{group}[0-9]{{3}})+" if thousands else ""
    found = re.fullmatch(rf"([+-]?)([0-9]{{1,30}}{grouped})(?:{point}([0-9]{{1,30}}))?", text)
    if found is None:
        like = f"1234{decimal}56"
        raise LineFault(
            f"the amount {text[:40]!r} is not written like {like}; where this file writes them so, say it in a mapping "
            "(decimal, thousands)"
        )
    whole = found[2].replace(thousands, "") if thousands else found[2]
    return Decimal(f"{found[1]}{whole}.{found[3] or '0'}")


def read_time(cell: Cell, form: str | None, timezone: str) -> int:
    """Seconds since 1970; a time without an offset is in the mapping's zone."""
    try:
        moment = _read_moment(cell, form)
    except (ValueError, OverflowError):
        raise LineFault(
            f"the time {str(cell)[:40]!r} is not {form or 'ISO 8601, for example 2026-11-01 12:00:00'}"
        ) from None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(timezone))).timestamp()
    if not 0 <= seconds < 10**11:
        raise LineFault(f"the time {cell} is not one of ours")
    return int(seconds)


def _read_moment(cell: Cell, form: str | None) -> datetime:
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)  # noqa: DTZ001 - the mapping's zone is given to it
    text = str(cell).strip()
    if form is not None:
        return datetime.strptime(text, form)  # noqa: DTZ007 - likewise
    return (
        datetime.fromtimestamp(int(text), UTC) if re.fullmatch(r"[0-9]{9,11}", text) else datetime.fromisoformat(text)
    )


def _read_truth(cell: Cell) -> bool:
    if isinstance(cell, bool):
        return cell
    text = str(cell).strip().lower()
    if text not in {"true", "false", "1", "0", "yes", "no"}:
        raise LineFault(f"{text[:20]!r} is neither true nor false")
    return text in {"true", "1", "yes"}


def built_in() -> list[ReportMapping]:
    return [load(path) for path in sorted(REPORTS.glob("*.toml"))]


def choose(header: Sequence[str]) -> ReportMapping:
    """The built-in mapping that this header is for; InputError says what the nearest one would need."""
    missing = {one.name: one.missing_from(header) for one in built_in()}
    for one in built_in():
        if not missing[one.name]:
            return one
    nearest = min(missing, key=lambda name: len(missing[name]))
    raise InputError(
        f"the columns are those of no report that is known here; for {nearest} these are missing: "
        f"{', '.join(missing[nearest])}",
        hint=f"Give a mapping with --mapping. The file has: {', '.join(header)[:500]}",
    )


def load(path: Path) -> ReportMapping:
    """A mapping from its file; InputError names what is wrong with it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"the mapping {path.name} cannot be read: {error}") from error
    return parse(document, path.stem)


def parse(document: Mapping[str, Any], name: str) -> ReportMapping:
    _refuse_unknown(document, KNOWN, f"the mapping {name}")
    rules = document.get("rows")
    if not isinstance(rules, list) or not rules:
        raise InputError(f"the mapping {name} has no [[rows]]", hint="docs/reconciliation-sync.md has an example.")
    given = {key: value for key, value in document.items() if key != "rows"}
    mapping = ReportMapping(name, [_parse_rule(rule, name) for rule in rules], **given)
    _check(mapping)
    return mapping


def _check(mapping: ReportMapping) -> None:
    where = f"the mapping {mapping.name}"
    if mapping.units not in {"major", "minor"}:
        raise InputError(f"{where}: units is {mapping.units!r}; it must be major (19.99) or minor (1999)")
    if len(mapping.decimal) != 1 or len(mapping.thousands) > 1 or mapping.decimal == mapping.thousands:
        raise InputError(f"{where}: decimal and thousands must be two different characters")
    try:
        ZoneInfo(mapping.timezone)
    except (ValueError, OSError, KeyError) as error:
        raise InputError(f"{where}: there is no timezone {mapping.timezone!r}") from error


def _parse_rule(rule: Any, name: str) -> RowRule:
    where = f"the mapping {name}: [[rows]]"
    if not isinstance(rule, dict) or rule.get("collection") not in COLLECTIONS:
        raise InputError(f"{where} needs a collection: {', '.join(COLLECTIONS)}")
    collection = rule["collection"]
    _refuse_unknown(rule, KNOWN_IN_ROWS, where)
    columns = {field: _alternatives(text) for field, text in rule.get("columns", {}).items()}
    constants = rule.get("constants", {})
    _refuse_unknown({**columns, **constants}, FIELDS[collection], f"{where} of {collection}")
    absent = NEEDED[collection] - set(columns) - set(constants)
    if absent:
        raise InputError(f"{where} of {collection} does not say where these come from: {', '.join(sorted(absent))}")
    others = {key: rule[key] for key in ("words", "when", "negate", "only_new", "derived") if key in rule}
    return RowRule(collection, columns, constants, **others)


def _alternatives(text: str) -> list[tuple[str, bool]]:
    """``"created_utc?|created"``: the first that is there and says something; ``?`` may be missing from the file."""
    return [(part.removesuffix("?"), part.endswith("?")) for part in str(text).split("|")]


def _refuse_unknown(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise InputError(f"{where} does not know {unknown[0]!r}; it knows {', '.join(sorted(known))}")
