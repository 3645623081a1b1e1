"""Workflows, transitions, attempts, keys, compensations, outbox, operators' actions."""

from makegood.migrations import run_file

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_file("migrations/0001_tables.sql")
    run_file("migrations/0001_guards.sql")
    run_file("migrations/0001_comments.sql")
