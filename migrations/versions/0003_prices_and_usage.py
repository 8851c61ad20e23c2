"""Prices of cache writes, of reasoning tokens and of an engine's time, their counts, and how long texts are kept."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

PRICES = ("cache_write_input_nanousd_per_mtok", "reasoning_output_nanousd_per_mtok", "nanousd_per_hour")
COUNTS = ("cache_write_tokens", "compute_us")
VIEW = "v_model_usage_daily"
SUMMED = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")


def upgrade() -> None:
    op.add_column("tenants", sa.Column("retention_days", sa.BigInteger))
    for name in PRICES:
        op.add_column("prices", sa.Column(name, sa.BigInteger))
    op.execute(f"DROP VIEW {VIEW}")
    for table in ("requests", "attempts"):
        for name in COUNTS:
            op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.execute(_usage_view(op.get_bind().dialect.name, (*SUMMED, *COUNTS)))


def downgrade() -> None:
    op.execute(f"DROP VIEW {VIEW}")
    for table in ("requests", "attempts"):
        for name in COUNTS:
            op.drop_column(table, name)
    op.execute(_usage_view(op.get_bind().dialect.name, SUMMED))
    for name in PRICES:
        op.drop_column("prices", name)
    op.drop_column("tenants", "retention_days")


def _usage_view(dialect: str, summed: Sequence[str]) -> str:
    if dialect == "postgresql":
        day, mean = "(a.started_at AT TIME ZONE 'UTC')::date", "AVG({})::double precision"
        total, dollars = "COALESCE(SUM({}), 0)::bigint", "COALESCE(SUM({}), 0) * 0.000000001"
    else:
        day, mean = "date(a.started_at)", "AVG({})"
        total, dollars = "COALESCE(SUM({}), 0)", "COALESCE(SUM({}), 0) / 1000000000.0"
    sums = ",\n  ".join(f"{total.format(f'a.{column}')} AS {column}" for column in summed)
    return f"""CREATE VIEW {VIEW} AS
SELECT {day} AS day, a.model AS model, a.provider AS provider, a.upstream_model AS upstream_model,
  COUNT(*) AS num_attempts,
  COUNT(CASE WHEN a.status <> 'ok' THEN 1 END) AS num_failed_attempts,
  {sums},
  {total.format("a.cost_nanousd")} AS cost_nanousd,
  {dollars.format("a.cost_nanousd")} AS cost_usd,
  {mean.format("a.ttft_ms")} AS mean_ttft_ms,
  {mean.format("a.latency_ms")} AS mean_latency_ms
FROM attempts a
GROUP BY {day}, a.model, a.provider, a.upstream_model"""
