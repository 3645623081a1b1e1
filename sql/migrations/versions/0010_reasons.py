"""Whoever carries out what was approved says why."""

from makegood.migrations import run_file

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    run_file("migrations/0010_reasons.sql")
