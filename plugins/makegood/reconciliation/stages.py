"""The rules as text, taken from where PostgreSQL has them, and the same text in another engine's words.

They are in ``sql/functions/verdicts.sql`` between ``-- stage: name`` and ``-- stage end``. Nothing is written a second
time: sqlglot translates the syntax, and the proofs compare the answers.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

from makegood.errors import ConfigurationError, InvariantError
from makegood.migrations import sql_folder

Dialect = Literal["duckdb", "spark"]

_STAGE = re.compile(r"^-- stage: (\w+)\n(.*?)^-- stage end$", re.MULTILINE | re.DOTALL)


def read_stages(text: str | None = None) -> dict[str, str]:
    """Name → query, in the order in which they build on each other; the last one is ``verdicts``."""
    if text is None:
        text = (sql_folder() / "functions" / "verdicts.sql").read_text(encoding="utf-8")
    stages = {name: query.strip() for name, query in _STAGE.findall(text)}
    if list(stages)[-1:] != ["verdicts"]:
        raise InvariantError("sql/functions/verdicts.sql has lost the marks of its stages")
    return stages


@functools.cache
def translate(query: str, dialect: Dialect) -> str:
    """One PostgreSQL query for that engine. What the other one cannot say is an error, never a guess."""
    try:
        import sqlglot  # noqa: PLC0415 - only where it is wanted
    except ImportError as error:
        raise missing("sqlglot") from error
    (translated,) = sqlglot.transpile(
        query, read="postgres", write=dialect, unsupported_level=sqlglot.ErrorLevel.RAISE, comments=False
    )
    return translated


def missing(package: str) -> ConfigurationError:
    return ConfigurationError(
        f"{package} is not installed", hint="Other engines are an extra: pip install 'makegood[engines]'"
    )
