"""Reconciliation: books that come as files, payments that orders let go of, and one time for both passes of a run."""

from makegood.migrations import run_file

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    run_file("migrations/0011_reconciliation_runs.sql")
