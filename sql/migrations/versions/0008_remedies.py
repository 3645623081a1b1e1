"""Remedies of findings: their policy, caps and kill switch, and what was done."""

from makegood.migrations import run_file

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    run_file("migrations/0008_remedies.sql")
