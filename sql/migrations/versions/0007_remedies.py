"""Remedies of findings: their policy, caps and kill switch, and what was done."""

from makegood.migrations import run_file

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run_file("migrations/0007_remedies.sql")
