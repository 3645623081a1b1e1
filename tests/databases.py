"""A migrated database of a test, as each role sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row


@dataclass(frozen=True)
class DatabaseUrls:
    """One migrated database, as each role sees it."""

    admin: str
    jobs: str
    read: str
    act: str = ""

    def rows(self, statement: Any, parameters: Any = (), *, role: str = "admin") -> list[dict[str, Any]]:
        with psycopg.connect(getattr(self, role), autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []
