"""How each batch of a run ended."""

from makegood.migrations import run_file

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    run_file("migrations/0012_batches.sql")
