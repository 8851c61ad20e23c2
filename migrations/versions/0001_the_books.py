"""The books: tenants, keys, prices, requests, attempts, decisions, and the views that dashboards read."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TIME = sa.DateTime(timezone=True)
TABLES = ("decisions", "attempts", "requests", "prices", "keys", "tenants", "versions")
VIEWS = ("v_model_usage_daily", "v_tenant_savings", "v_tenant_costs_monthly", "v_tenant_costs_daily")


def upgrade() -> None:
    _create_tenants()
    _create_prices()
    _create_requests()
    _create_attempts()
    _create_decisions()
    for view in _views(op.get_bind().dialect.name):
        op.execute(view)


def downgrade() -> None:
    for view in VIEWS:
        op.execute(f"DROP VIEW {view}")
    for table in TABLES:
        op.drop_table(table)


def _create_tenants() -> None:
    versions = op.create_table(
        "versions",
        sa.Column("topic", sa.String(32), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("topic", name="pk_versions"),
    )
    op.bulk_insert(versions, [{"topic": "tenants", "version": 1}, {"topic": "prices", "version": 1}])
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("concurrent_requests", sa.BigInteger),
        sa.Column("baseline_model", sa.Text),
        sa.Column("default_max_tokens", sa.BigInteger),
        sa.Column("capture", sa.String(16), nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant_id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("prefix", sa.String(16), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_keys_tenant_id"),
        sa.UniqueConstraint("hash", name="uq_keys_hash"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_keys_tenant_id_name"),
    )


def _create_prices() -> None:
    op.create_table(
        "prices",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("valid_from", TIME, nullable=False),
        sa.Column("input_nanousd_per_mtok", sa.BigInteger, nullable=False),
        sa.Column("output_nanousd_per_mtok", sa.BigInteger, nullable=False),
        sa.Column("cached_input_nanousd_per_mtok", sa.BigInteger, nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_prices"),
        sa.UniqueConstraint("model", "valid_from", name="uq_prices_model_valid_from"),
    )


def _token_columns() -> list[sa.Column[int]]:
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _create_requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant_id", sa.String(32), nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("requested_model", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("provider", sa.Text),
        sa.Column("tier", sa.Text),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("http_status", sa.Integer, nullable=False),
        sa.Column("error_code", sa.Text),
        sa.Column("cache", sa.String(16), nullable=False),
        sa.Column("cache_reason", sa.Text, nullable=False),
        sa.Column("cache_entry", sa.Text),
        sa.Column("similarity", sa.Double),
        sa.Column("route_reason", sa.Text, nullable=False),
        *_token_columns(),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.Column("cost_nanousd", sa.BigInteger, nullable=False),
        sa.Column("baseline_model", sa.Text),
        sa.Column("baseline_cost_nanousd", sa.BigInteger),
        sa.Column("saved_by_cache_nanousd", sa.BigInteger, nullable=False),
        sa.Column("saved_by_routing_nanousd", sa.BigInteger, nullable=False),
        sa.Column("ttft_ms", sa.Double),
        sa.Column("latency_ms", sa.Double, nullable=False),
        sa.Column("namespace", sa.Text),
        sa.Column("user", sa.Text),
        sa.Column("config_hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
    )
    op.create_index("ix_requests_started_at", "requests", ["started_at"])
    op.create_index("ix_requests_tenant_id_started_at", "requests", ["tenant_id", "started_at"])


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("request_id", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("upstream_model", sa.Text, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("http_status", sa.Integer),
        sa.Column("error_code", sa.Text),
        *_token_columns(),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.Column("cost_nanousd", sa.BigInteger, nullable=False),
        sa.Column("ttft_ms", sa.Double),
        sa.Column("latency_ms", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_attempts_request_id"),
    )
    op.create_index("ix_attempts_request_id", "attempts", ["request_id"])
    op.create_index("ix_attempts_started_at", "attempts", ["started_at"])


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("request_id", sa.String(32), nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double),
        sa.Column("task", sa.Text),
        sa.Column("signals", sa.Text, nullable=False),
        sa.Column("embedding", sa.LargeBinary),
        sa.Column("text", sa.Text),
        sa.PrimaryKeyConstraint("request_id", name="pk_decisions"),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name="fk_decisions_request_id"),
    )


def _views(dialect: str) -> list[str]:
    """The four views in one dialect's words. Dollars are exact numerics on PostgreSQL; SQLite knows only floats."""
    if dialect == "postgresql":
        day, month = "({}.started_at AT TIME ZONE 'UTC')::date", "to_char({}.started_at AT TIME ZONE 'UTC', 'YYYY-MM')"
        total, dollars = "COALESCE(SUM({}), 0)::bigint", "COALESCE(SUM({}), 0) * 0.000000001"
        mean = "AVG({})::double precision"
    else:
        day, month = "date({}.started_at)", "strftime('%Y-%m', {}.started_at)"
        total, dollars = "COALESCE(SUM({}), 0)", "COALESCE(SUM({}), 0) / 1000000000.0"
        mean = "AVG({})"

    def sums(table: str, *columns: str) -> str:
        return ",\n  ".join(f"{total.format(f'{table}.{column}')} AS {column}" for column in columns)

    def money(table: str, *columns: str) -> str:
        both = [(f"{table}.{column}_nanousd", column) for column in columns]
        return ",\n  ".join(
            f"{total.format(exact)} AS {name}_nanousd,\n  {dollars.format(exact)} AS {name}_usd" for exact, name in both
        )

    hits = "COUNT(CASE WHEN r.cache IN ('hit-exact', 'hit-semantic') THEN 1 END)"
    requests = f"""COUNT(*) AS num_requests,
  COUNT(CASE WHEN r.status <> 'ok' THEN 1 END) AS num_failed_requests,
  {hits} AS num_cache_hits,
  {sums("r", "prompt_tokens", "completion_tokens")},
  {money("r", "cost", "saved_by_cache", "saved_by_routing")}"""

    def costs(name: str, label: str, period: str) -> str:
        return f"""CREATE VIEW {name} AS
SELECT {period.format("r")} AS {label}, r.tenant_id AS tenant_id, COALESCE(t.name, r.tenant_id) AS tenant_name,
  {requests}
FROM requests r LEFT JOIN tenants t ON t.id = r.tenant_id
GROUP BY {period.format("r")}, r.tenant_id, COALESCE(t.name, r.tenant_id)"""

    saved = "r.saved_by_cache_nanousd + r.saved_by_routing_nanousd"
    savings = f"""CREATE VIEW v_tenant_savings AS
SELECT r.tenant_id AS tenant_id, COALESCE(t.name, r.tenant_id) AS tenant_name,
  MIN(r.started_at) AS first_request_at, MAX(r.started_at) AS last_request_at,
  COUNT(*) AS num_requests,
  {hits} AS num_cache_hits,
  COUNT(r.baseline_cost_nanousd) AS num_requests_with_baseline,
  {money("r", "cost", "baseline_cost", "saved_by_cache", "saved_by_routing")},
  {total.format(saved)} AS saved_nanousd,
  {dollars.format(saved)} AS saved_usd
FROM requests r LEFT JOIN tenants t ON t.id = r.tenant_id
GROUP BY r.tenant_id, COALESCE(t.name, r.tenant_id)"""

    usage = f"""CREATE VIEW v_model_usage_daily AS
SELECT {day.format("a")} AS day, a.model AS model, a.provider AS provider, a.upstream_model AS upstream_model,
  COUNT(*) AS num_attempts,
  COUNT(CASE WHEN a.status <> 'ok' THEN 1 END) AS num_failed_attempts,
  {sums("a", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")},
  {money("a", "cost")},
  {mean.format("a.ttft_ms")} AS mean_ttft_ms,
  {mean.format("a.latency_ms")} AS mean_latency_ms
FROM attempts a
GROUP BY {day.format("a")}, a.model, a.provider, a.upstream_model"""

    return [
        costs("v_tenant_costs_daily", "day", day),
        costs("v_tenant_costs_monthly", "month", month),
        savings,
        usage,
    ]
