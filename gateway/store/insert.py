"""INSERT ... ON CONFLICT: each dialect has a construct of its own; PostgreSQL's takes 2 MB that SQLite does without."""

from typing import TYPE_CHECKING

from sqlalchemy import Dialect, Table

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


def insert_into(table: Table, dialect: Dialect) -> "postgresql.Insert | sqlite.Insert":
    """With `on_conflict_do_nothing` and `on_conflict_do_update`, alike in both."""
    if dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
