"""Remedies of findings: their policy, caps and kill switch, and what was done."""

from makegood.migrations import run_file

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_file("migrations/0006_remedies.sql")
