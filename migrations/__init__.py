"""Alembic revisions: the tables, and the SQL views that dashboards read."""
