"""Scheduled jobs: dead letters, breakers, runs and what they decided, alerts on their way."""

from makegood.migrations import run_file

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_file("migrations/0002_jobs.sql")
