"""Alembic's entry: roles first, then the revisions as the owner, then functions and grants if they changed."""

from alembic import context

from makegood import migrations

if context.is_offline_mode():
    migrations.print_offline()
else:
    migrations.run_online()
