"""OpenAI's objects of files, and pages of objects."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.files.types import StoredFile


def file_object(file: StoredFile) -> dict[str, Any]:
    told = {
        "id": file.id,
        "object": "file",
        "bytes": file.num_bytes,
        "created_at": int(file.created_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }
    return told | ({"expires_at": int(file.expires_at.timestamp())} if file.expires_at is not None else {})


def deleted_file(id: str) -> bytes:
    return msgspec.json.encode({"id": id, "object": "file", "deleted": True})


def page_of(objects: Sequence[dict[str, Any]], limit: int) -> bytes:
    """A page of at most `limit`, from one object more than that where there are more."""
    page = objects[:limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return msgspec.json.encode({"object": "list", "data": page, "has_more": len(objects) > limit} | ends)
