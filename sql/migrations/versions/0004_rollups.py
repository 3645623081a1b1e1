"""Rollups: the overview's numbers as counts per minute, hour and day; parts of an order's number are found."""

from makegood.migrations import run_file

revision = "0004"
down_revision = "0002"


def upgrade() -> None:
    run_file("migrations/0004_rollups.sql")
