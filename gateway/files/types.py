"""What is known of a file beside its bytes."""

from datetime import datetime

import msgspec

PART_BYTES = 2**20  # a file is written and read in parts of about this size, so that none is ever whole in memory


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tenant_id: str
    filename: str
    purpose: str
    num_bytes: int
    created_at: datetime
    expires_at: datetime | None = None
