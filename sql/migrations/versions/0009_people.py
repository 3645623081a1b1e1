"""People and their roles; what was asked for through the dashboard."""

from makegood.migrations import run_file

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    run_file("migrations/0009_people.sql")
