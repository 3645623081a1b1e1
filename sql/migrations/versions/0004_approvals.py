"""Approvals: what one person asks for and another one allows."""

from makegood.migrations import run_file

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_file("migrations/0004_approvals.sql")
