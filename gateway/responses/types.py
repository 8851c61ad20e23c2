"""What is kept of a response. JSON stays bytes until somebody reads it."""

from datetime import datetime
from typing import Any

import msgspec

from gateway.wire.responses_api.response_object import ACTIVE

Item = dict[str, Any]


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`input`: a JSON array of the items put in. `body`: the response object; of its status, `status` is the truth."""

    id: str
    tenant_id: str
    previous_id: str | None
    status: str
    background: bool
    created_at: datetime
    expires_at: datetime
    lease_until: datetime | None = None
    input: bytes
    body: bytes

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def items(self) -> list[Item]:
        items: list[Item] = msgspec.json.decode(self.input)
        return items

    @property
    def response(self) -> dict[str, Any]:
        response: dict[str, Any] = msgspec.json.decode(self.body)
        return response | {"status": self.status}

    @property
    def encoded(self) -> bytes:
        return msgspec.json.encode(self.response)

    @property
    def num_bytes(self) -> int:
        return len(self.input) + len(self.body)
