"""The lines of a settlement report, one after another, whatever its size: CSV or Parquet.

A line that cannot be read is told with its number and the reason, and the next one comes. Nothing holds more than one
record of CSV or one small batch of Parquet.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from makegood.errors import InputError
from makegood.reconciliation.mapping import Cell, ReportMapping

LINE_BYTES_MAX = 1024 * 1024
RECORD_LINES_MAX = 50  # a quote that is never closed must not swallow the file
PARQUET_ROWS = 1000
PARQUET_BUFFER_BYTES = 1024 * 1024
HASH_BYTES = 1024 * 1024
CONTENT_MAX = 2000
PARQUET_MAGIC = b"PAR1"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Line:
    """A record with its number in the file; ``fault`` instead of cells where it could not be read."""

    number: int
    cells: dict[str, Cell] = field(default_factory=dict)
    fault: str | None = None
    content: str = ""
    read_bytes: int = 0


def is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix.lower() in {".parquet", ".pq"} or file.read(4) == PARQUET_MAGIC


def count_to_read(path: Path) -> int:
    """Of how much a reader tells how far it is: bytes of CSV, rows of Parquet."""
    if not is_parquet(path):
        return path.stat().st_size
    with ParquetFile(path) as file:
        return file.rows


def fingerprint(path: Path, *how: str) -> str:
    """Of every byte of the file and of how it is read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(HASH_BYTES):
            digest.update(part)
    for word in how:
        digest.update(b"\0" + word.encode())
    return digest.hexdigest()


def check_file(path: Path) -> None:
    """InputError for what is no file to import at all."""
    try:
        if not path.is_file():
            raise InputError(f"{path.name} is not there, or is no file")
        if path.stat().st_size == 0:
            raise InputError(f"{path.name} is empty", hint="Was it downloaded to its end?")
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}") from error


# CSV


class CsvFile:
    """Records of a CSV file in an encoding whose line ends are those of ASCII."""

    def __init__(self, path: Path, *, delimiter: str = ",", encoding: str = "utf-8") -> None:
        self._name = path.name
        self._encoding = _check_encoding(encoding)
        self._delimiter = delimiter
        self._file: IO[bytes] = path.open("rb")
        self._number = 0
        self._read_bytes = 0
        self._waiting: list[tuple[int, bytes, int]] = []
        try:
            self.header = self._read_header()
        except InputError:
            self._file.close()
            raise

    def __enter__(self) -> CsvFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Line]:
        while (found := self._next()) is not None:
            number, raw, length = found
            if raw.strip():
                yield self._read_record(number, raw, length)

    def _read_header(self) -> list[str]:
        found = self._next()
        raw = found[1] if found else b""
        if raw.startswith(UTF16_MARKS):
            raise InputError(f"{self._name} is UTF-16", hint="Save it as UTF-8.")
        line = self._read_record(1, raw.removeprefix(codecs.BOM_UTF8), len(raw), header=True)
        if line.fault is not None:
            raise InputError(f"the first line of {self._name} has to name the columns: {line.fault}")
        names = [str(name).strip() for name in line.cells.values()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{self._name} has the column {twice[0]!r} twice")
        return names

    def _next(self) -> tuple[int, bytes, int] | None:
        """A line with its number and whole length; of one that is too long only the beginning."""
        if self._waiting:
            return self._waiting.pop(0)
        raw = self._file.readline(LINE_BYTES_MAX + 1)
        if not raw:
            return None
        self._number += 1
        length = len(raw)
        while len(raw) > LINE_BYTES_MAX and not raw.endswith(b"\n"):
            part = self._file.readline(LINE_BYTES_MAX)
            length += len(part)
            if not part or part.endswith(b"\n"):
                break
        self._read_bytes += length
        return self._number, raw, length

    def _read_record(self, number: int, raw: bytes, length: int, *, header: bool = False) -> Line:
        """A record is one line, or several where a quoted field has line ends."""
        lines = [(number, raw, length)]
        while True:
            text, fault = self._decode(lines)
            fields: list[str] | None = None
            if fault is None:
                fields, fault = self._split(text)
            if fields is not None or fault is not None:
                break
            more = self._next() if len(lines) < RECORD_LINES_MAX else None
            if more is None:
                self._waiting = lines[1:] + self._waiting  # they may be lines of their own
                fault = "a quote is opened and never closed"
                break
            lines.append(more)
        return self._line(number, text, fields, fault, header=header)

    def _decode(self, lines: Sequence[tuple[int, bytes, int]]) -> tuple[str, str | None]:
        whole = b"".join(raw for _, raw, _ in lines)
        shown = whole[:CONTENT_MAX].decode(self._encoding, "replace").replace("\0", "\ufffd")
        if sum(length for _, _, length in lines) > LINE_BYTES_MAX:
            return shown, f"it is longer than {LINE_BYTES_MAX:,} bytes"
        if not whole.endswith((b"\n", b"\r")):
            return shown, "the file ends in the middle of it (no line end): is the file cut off? If not, add a line end"
        try:
            text = whole.decode(self._encoding)
        except UnicodeDecodeError as error:
            byte = whole[error.start]
            return shown, f"it is not {self._encoding}: byte 0x{byte:02x} at {error.start + 1}; give --encoding"
        return (text, None) if "\0" not in text else (shown, "it has a NUL in it")

    def _split(self, text: str) -> tuple[list[str] | None, str | None]:
        """Fields, or a fault, or neither: a quoted field goes on in the next line."""
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            return (None, None) if "unexpected end of data" in str(error) else (None, f"it is not CSV: {error}")
        return (rows[0], None) if len(rows) == 1 else (None, "it is not one record: a line end outside of quotes")

    def _line(self, number: int, text: str, fields: list[str] | None, fault: str | None, *, header: bool) -> Line:
        content = text[:CONTENT_MAX].rstrip("\r\n")
        if fields is None:
            return Line(number, fault=fault, content=content, read_bytes=self._read_bytes)
        if header:
            return Line(number, {str(at): name for at, name in enumerate(fields)})
        if len(fields) != len(self.header):
            fault = f"it has {len(fields)} fields and the header has {len(self.header)}"
            return Line(number, fault=fault, content=content, read_bytes=self._read_bytes)
        cells: dict[str, Cell] = dict(zip(self.header, fields, strict=True))
        return Line(number, cells, content=content, read_bytes=self._read_bytes)


def _check_encoding(encoding: str) -> str:
    try:
        plain = "\n,".encode(encoding) == b"\n,"
    except LookupError:
        raise InputError(f"there is no encoding {encoding!r}", hint="For example utf-8, latin-1 or cp1252.") from None
    if not plain:
        raise InputError(f"files in {encoding} are not read", hint="Save it as UTF-8.")
    return encoding


# Parquet


class ParquetFile:
    """Rows of a Parquet file, a small batch at a time."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - takes a second, and only this kind of file needs it
        from pyarrow import parquet  # noqa: PLC0415

        self._arrow: Any = pa
        try:
            self._file: Any = parquet.ParquetFile(path, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{path.name} is no whole Parquet file: {_first_line(error)}", hint="Was it downloaded to its end?"
            ) from error
        self.header: list[str] = list(self._file.schema_arrow.names)
        self.rows: int = self._file.metadata.num_rows

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def check_money(self, mapping: ReportMapping) -> None:
        """Money in a binary fraction is refused: it was not exact when it was written."""
        for name in mapping.money_columns():
            at = self._file.schema_arrow.get_field_index(name)
            if at >= 0 and self._arrow.types.is_floating(self._file.schema_arrow.field(at).type):
                raise InputError(
                    f"the column {name} is a binary fraction ({self._file.schema_arrow.field(at).type})",
                    hint="Money has to be decimal, whole numbers or text: write the file again with such a column.",
                )

    def lines(self, columns: Sequence[str]) -> Iterator[Line]:
        number = 0
        try:
            for batch in self._file.iter_batches(batch_size=PARQUET_ROWS, columns=list(columns)):
                for cells in batch.to_pylist():
                    number += 1
                    yield Line(number, cells, fault=_fault_of(cells), content=_shown(cells), read_bytes=number)
        except (self._arrow.ArrowException, OSError) as error:
            raise InputError(
                f"the file is damaged after row {number:,}: {_first_line(error)}",
                hint="What came before is stored; get the file again.",
            ) from error


def _fault_of(cells: dict[str, Any]) -> str | None:
    for name, value in cells.items():
        if isinstance(value, str) and ("\0" in value or len(value) > LINE_BYTES_MAX):
            return f"{name} has a NUL in it, or is too long"
        if not isinstance(value, str | int | Decimal | bool | type(None)) and not hasattr(value, "isoformat"):
            return f"{name} is {type(value).__name__}, not text, a number or a time"
    return None


def _shown(cells: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in cells.items())[:CONTENT_MAX].replace("\0", "\ufffd")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
