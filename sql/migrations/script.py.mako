"""${message}"""

from makegood.migrations import run_file

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    run_file("migrations/${up_revision}.sql")
