"""Rollups: the overview's numbers as counts per minute, hour and day; parts of an order's number are found."""

from makegood.migrations import run_file

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run_file("migrations/0007_rollups.sql")
