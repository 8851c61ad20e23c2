"""The tables of budgets, beside those of `tables`."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, String, Table, Text, UniqueConstraint

from gateway.store.ledger_tables import metadata  # with all the others
from gateway.store.tables import UtcDateTime

__all__ = ["budget_alerts", "budgets", "metadata"]

budgets = Table(
    "budgets",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(32), ForeignKey("tenants.id"), nullable=False, index=True),
    Column("owner_kind", String(16), nullable=False),  # tenant, team, key
    Column("owner_id", String(32), nullable=False),
    Column("period", String(16), nullable=False),  # day, month
    Column("amount_nanousd", BigInteger, nullable=False),
    Column("hard", Boolean, nullable=False),
    Column("warn_percents", Text, nullable=False),  # "80,100"
    Column("webhook_url", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("owner_id", "period", "hard"),
)

budget_alerts = Table(  # a mark that a budget came to in a period; the row is what makes it told once
    "budget_alerts",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("budget_id", String(32), nullable=False),
    Column("period", String(16), nullable=False),  # "2026-11-30", "2026-11"
    Column("mark", Integer, nullable=False),  # percent of the amount; 0: a request was refused
    Column("spent_nanousd", BigInteger, nullable=False),
    Column("reached_at", UtcDateTime, nullable=False),
    Column("claimed_at", UtcDateTime, nullable=False),  # by the gateway that tells it
    Column("delivered_at", UtcDateTime),  # null: no webhook has taken it (yet)
    UniqueConstraint("budget_id", "period", "mark"),
)
