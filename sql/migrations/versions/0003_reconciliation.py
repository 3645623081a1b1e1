"""Reconciliation: orders, the provider's books, runs, findings and their history."""

from makegood.migrations import run_file

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_file("migrations/0003_reconciliation.sql")
