"""Teams, what keys may be used for, their expiry and rotation, what is to leave the caches, and the audit table."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TIME = sa.DateTime(timezone=True)
LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
SCOPE = ("models", "tiers", "endpoints", "ip_ranges")


def upgrade() -> None:
    _create_teams()
    _widen_keys()
    _create_erasures()
    _create_audit()
    op.execute("INSERT INTO versions (topic, version) VALUES ('erasures', 1)")


def downgrade() -> None:
    op.execute("DELETE FROM versions WHERE topic = 'erasures'")
    for table in ("audit", "cache_erasures"):
        op.drop_table(table)
    with op.batch_alter_table("keys") as keys:
        keys.drop_constraint("uq_keys_previous_hash", type_="unique")
        keys.drop_constraint("fk_keys_team_id", type_="foreignkey")
        for name in ("previous_until", "previous_hash", "expires_at", *SCOPE, *LIMITS, "team_id"):
            keys.drop_column(name)
    op.drop_table("teams")


def _create_teams() -> None:
    op.create_table(
        "teams",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant_id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in LIMITS),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_teams"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_teams_tenant_id"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_teams_tenant_id_name"),
    )


def _widen_keys() -> None:
    with op.batch_alter_table("keys") as keys:  # SQLite can't add a constraint to a table that is there
        keys.add_column(sa.Column("team_id", sa.String(32)))
        for name in LIMITS:
            keys.add_column(sa.Column(name, sa.BigInteger))
        for name in SCOPE:
            keys.add_column(sa.Column(name, sa.Text))
        keys.add_column(sa.Column("expires_at", TIME))
        keys.add_column(sa.Column("previous_hash", sa.String(64)))
        keys.add_column(sa.Column("previous_until", TIME))
        keys.create_foreign_key("fk_keys_team_id", "teams", ["team_id"], ["id"])
        keys.create_unique_constraint("uq_keys_previous_hash", ["previous_hash"])


def _create_erasures() -> None:
    op.create_table(
        "cache_erasures",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant_id", sa.String(32)),
        sa.Column("entry_id", sa.Text),
        sa.Column("erased_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cache_erasures"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor_kind", sa.String(16), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("tenant_id", sa.String(32)),
        sa.Column("target_id", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_tenant_id", "audit", ["tenant_id"])
