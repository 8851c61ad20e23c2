"""Budgets of tenants, teams and keys, and the marks that they came to."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant_id", sa.String(32), nullable=False),
        sa.Column("owner_kind", sa.String(16), nullable=False),
        sa.Column("owner_id", sa.String(32), nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("amount_nanousd", sa.BigInteger, nullable=False),
        sa.Column("hard", sa.Boolean, nullable=False),
        sa.Column("warn_percents", sa.Text, nullable=False),
        sa.Column("webhook_url", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_budgets"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_budgets_tenant_id"),
        sa.UniqueConstraint("owner_id", "period", "hard", name="uq_budgets_owner_id_period_hard"),
    )
    op.create_index("ix_budgets_tenant_id", "budgets", ["tenant_id"])
    op.create_table(
        "budget_alerts",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("budget_id", sa.String(32), nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("mark", sa.Integer, nullable=False),
        sa.Column("spent_nanousd", sa.BigInteger, nullable=False),
        sa.Column("reached_at", TIME, nullable=False),
        sa.Column("claimed_at", TIME, nullable=False),
        sa.Column("delivered_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_budget_alerts"),
        sa.UniqueConstraint("budget_id", "period", "mark", name="uq_budget_alerts_budget_id_period_mark"),
    )
    op.execute("INSERT INTO versions (topic, version) VALUES ('budgets', 1)")


def downgrade() -> None:
    op.execute("DELETE FROM versions WHERE topic = 'budgets'")
    op.drop_table("budget_alerts")
    op.drop_table("budgets")
