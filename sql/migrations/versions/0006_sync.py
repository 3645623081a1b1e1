"""Fetching the provider's books: windows under way, rows kept aside, imports."""

from makegood.migrations import run_file

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_file("migrations/0006_sync.sql")
