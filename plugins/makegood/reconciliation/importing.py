"""Takes a settlement report into the provider's books, in bounded memory.

Each batch of lines, what was kept aside of it and how far the file is are one transaction: an import that was killed
goes on after its last batch, and the same file again changes nothing. A bad line is kept aside with number and reason.

Up to when the books are complete with a file, only whoever delivers it knows: its own last row proves nothing. Said
with ``complete_until`` it moves the watermark; until it is said once, no run judges by these books.

Weakness: a file that lost whole lines at its end, after a line end, looks like a shorter one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from makegood.database import Database
from makegood.errors import InputError, MakegoodError
from makegood.reconciliation import mapping as mappings
from makegood.reconciliation.files import CsvFile, Line, ParquetFile, check_file, fingerprint, is_parquet
from makegood.reconciliation.mapping import LineFault, ReportMapping

BATCH_LINES = 1000
BATCH_SIGNS = 4 * 1024 * 1024  # a thousand lines may be long ones
FAULTS_SHOWN = 20

Tell = Callable[[Counter[str], float], None]


class ImportTaken(MakegoodError):
    """Another process is importing the same file by now."""


@dataclass
class Imported:
    """What an import came to; ``faults`` are the first lines that were kept aside."""

    import_id: str
    provider: str
    mapping: str
    resumed_after: int
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)
    collections: list[Complete] = field(default_factory=list)


@dataclass(frozen=True)
class Complete:
    """How far a collection of the file's provider is complete; ``reason``: why it did not move though it was to."""

    collection: str
    watermark: datetime | None
    reason: str | None


@dataclass
class _Batch:
    items: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    lines: int = 0
    upto: int = 0
    read_bytes: int = 0


async def import_file(
    database: Database,
    path: Path,
    *,
    mapping: ReportMapping | None = None,
    provider: str | None = None,
    encoding: str | None = None,
    livemode: bool,
    complete_until: datetime | None = None,
    complete_from: datetime | None = None,
    tell: Tell = lambda counts, read: None,
) -> Imported:
    """With this file the provider's books are complete until then, and it has everything from ``complete_from`` on.

    ``tell`` hears of each batch: what it came to, and how many bytes (of Parquet: rows) have been read in all."""
    check_file(path)
    rows = await database.call("SELECT code, exponent FROM makegood.currencies")
    exponents = {row["code"]: row["exponent"] for row in rows}
    opened = _open(path, mapping, encoding)
    with opened.file:
        name = provider or opened.mapping.provider or "import"
        how = (name, repr(opened.mapping), opened.encoding, str(livemode))
        (begun,) = await database.call(
            "SELECT * FROM makegood.begin_import(%s, %s, %s)", (name, fingerprint(path, *how), path.name[:255])
        )
        done = Imported(str(begun["id"]), name, opened.mapping.name, begun["lines_done"], Counter(begun["counts"]))
        left = (line for line in opened.lines() if line.number > begun["lines_done"])
        for batch in _batches(left, opened.mapping, exponents, livemode):
            await _put(database, begun, batch, done, tell)
        ended = await database.call("SELECT makegood.finish_import(%s, %s) AS counts", (begun["id"], begun["fence"]))
        _check_ours(ended[0]["counts"], path)
        done.collections = await _complete(database, done, opened.mapping, complete_until, complete_from)
        return done


async def _complete(
    database: Database, done: Imported, mapping: ReportMapping, until: datetime | None, since: datetime | None
) -> list[Complete]:
    rows = await database.call(
        "SELECT * FROM makegood.complete_import(%s, %s, %s, %s)",
        (done.import_id, sorted({rule.collection for rule in mapping.rules}), until, since),
    )
    return [Complete(row["collection"], row["watermark"], row["reason"]) for row in rows]


@dataclass
class _Opened:
    file: CsvFile | ParquetFile
    mapping: ReportMapping
    encoding: str

    def lines(self) -> Iterator[Line]:
        if isinstance(self.file, ParquetFile):
            return self.file.lines(self.mapping.columns_of(self.file.header))
        return iter(self.file)


def _open(path: Path, mapping: ReportMapping | None, encoding: str | None) -> _Opened:
    encoding = encoding or (mapping.encoding if mapping else "utf-8")
    file: CsvFile | ParquetFile
    if is_parquet(path):
        file = ParquetFile(path)
    else:
        file = CsvFile(path, delimiter=mapping.delimiter if mapping else ",", encoding=encoding)
    try:
        return _Opened(file, _fit(mapping or mappings.choose(file.header), file, path.name), encoding)
    except InputError:
        file.__exit__()
        raise


def _fit(mapping: ReportMapping, file: CsvFile | ParquetFile, name: str) -> ReportMapping:
    """The mapping, if the file has what it needs."""
    missing = mapping.missing_from(file.header)
    if missing:
        raise InputError(
            f"{name} lacks columns that the mapping {mapping.name} needs: {', '.join(missing)}",
            hint=f"The file has: {', '.join(file.header)[:500]}",
        )
    if isinstance(file, ParquetFile):
        file.check_money(mapping)
    return mapping


def _batches(
    lines: Iterable[Line], mapping: ReportMapping, exponents: Mapping[str, int], livemode: bool
) -> Iterator[_Batch]:
    batch, size = _Batch(), 0
    for line in lines:
        _add(batch, line, mapping, exponents, livemode)
        size += sum(len(cell) for cell in line.cells.values() if isinstance(cell, str)) + len(line.content)
        if batch.lines >= BATCH_LINES or size >= BATCH_SIGNS:
            yield batch
            batch, size = _Batch(), 0
    if batch.lines:
        yield batch


def _add(batch: _Batch, line: Line, mapping: ReportMapping, exponents: Mapping[str, int], livemode: bool) -> None:
    batch.lines += 1
    batch.upto, batch.read_bytes = line.number, line.read_bytes
    reason = line.fault
    if reason is None:
        try:
            items = mappings.read_line(mapping, line.cells, exponents, livemode=livemode)
            batch.items += [{"line": line.number, **vars(item)} for item in items]
        except LineFault as fault:
            reason = str(fault)
    if reason is not None:
        batch.rejects.append({"line": line.number, "reason": reason, "content": _clean(line.content)})


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


async def _put(database: Database, begun: Mapping[str, Any], batch: _Batch, done: Imported, tell: Tell) -> None:
    rows = await database.call(
        "SELECT makegood.put_import_batch(%s, %s, %s::jsonb, %s::jsonb, %s) AS put",
        (begun["id"], begun["fence"], json.dumps(batch.items), json.dumps(batch.rejects), batch.upto),
    )
    put = rows[0]["put"]
    if put is None:
        raise ImportTaken("another process has taken up the import of this file", hint="Let it end, then look again.")
    counts = Counter({name: put[name] for name in ("rows", "changed", "duplicates", "rejected")}) + Counter(
        lines=batch.lines
    )
    done.counts += counts
    told = [(one["line"], one["reason"]) for one in (*batch.rejects, *put["refused"])]
    done.faults += sorted(told)[: max(0, FAULTS_SHOWN - len(done.faults))]
    tell(counts, batch.read_bytes)


def _check_ours(counts: Mapping[str, int] | None, path: Path) -> None:
    if counts is None:
        raise ImportTaken(f"another process has taken up the import of {path.name}")
