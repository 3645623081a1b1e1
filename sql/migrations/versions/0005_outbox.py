"""The outbox with a reader per topic, and an end to what was delivered."""

from makegood.migrations import run_file

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    run_file("migrations/0005_outbox.sql")
