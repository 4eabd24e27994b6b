"""Requests by key and period: what rate limits and monthly quotas of several processes agree on."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "request_counters",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("updated_at_epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "period", name="pk_request_counters"),
    )
    op.create_index("ix_request_counters_updated_at_epoch", "request_counters", ["updated_at_epoch"])


def downgrade() -> None:
    op.drop_table("request_counters")
