"""How each batch of a run ended."""

from makegood.migrations import run_file

revision = "0013"
down_revision = "0009"


def upgrade() -> None:
    run_file("migrations/0013_batches.sql")
