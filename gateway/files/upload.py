"""POST /v1/files: a form whose file goes into the database as it comes, whatever its size and its parts' order."""

from collections.abc import AsyncIterator

from gateway.errors import InvalidRequestError
from gateway.files.files import Files, Writing
from gateway.files.types import StoredFile
from gateway.wire.body import invalid, missing
from gateway.wire.form import FormReader

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
MAX_FIELD_BYTES = 4096
MAX_FILENAME = 255
MIN_TTL_S, MAX_TTL_S = 3600, 2_592_000  # OpenAI's
_TTL = "expires_after[seconds]"
_ANCHOR = "expires_after[anchor]"


async def upload(files: Files, tenant_id: str, content_type: str | None, pieces: AsyncIterator[bytes]) -> StoredFile:
    """Raises InvalidRequestError, PayloadTooLarge and what `pieces` raises; nothing of the file is left then."""
    form = FormReader(content_type)
    writing = await files.begin(tenant_id)
    try:
        reading = _Reading(writing)
        async for piece in pieces:
            for event in form.feed(piece):
                await reading.take(event)
        form.end()
        return await reading.finish(files.config.batch_ttl_days)
    except BaseException:
        await writing.drop()
        raise


class _Reading:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._fields: dict[str, bytearray] = {}
        self._filename: str | None = None
        self._name: str | None = None  # of the part that is being read

    async def take(self, event: object) -> None:
        if event is None:
            self._name = None
        elif isinstance(event, bytes | bytearray):
            await self._bytes(event)
        else:
            self._begin(event.name, event.filename)  # type: ignore[attr-defined]

    def _begin(self, name: str, filename: str | None) -> None:
        if name in self._fields or (name == "file" and self._filename is not None):
            raise InvalidRequestError(f"The parameter {name[:100]!r} is given more than once.", param=name[:100])
        self._name = name
        if name == "file":
            self._filename = _cleaned(filename)
        else:
            self._fields[name] = bytearray()

    async def _bytes(self, data: bytes | bytearray) -> None:
        assert self._name is not None
        if self._name == "file":
            await self._writing.write(data)
            return
        field = self._fields[self._name]
        field += data
        if len(field) > MAX_FIELD_BYTES:
            raise invalid(self._name[:100], f"longer than {MAX_FIELD_BYTES} bytes")

    async def finish(self, batch_ttl_days: float) -> StoredFile:
        if self._filename is None:
            raise missing("file")
        purpose = self._text("purpose")
        if purpose is None:
            raise missing("purpose")
        if purpose not in PURPOSES:
            raise invalid("purpose", f"{purpose[:40]!r} is not one of {', '.join(PURPOSES)}")
        ttl_s = self._ttl_s()
        if ttl_s is None and purpose == "batch":
            ttl_s = batch_ttl_days * 86_400
        return await self._writing.finish(filename=self._filename, purpose=purpose, ttl_s=ttl_s)

    def _ttl_s(self) -> float | None:
        seconds = self._text(_TTL)
        if seconds is None:
            return None
        if self._text(_ANCHOR) not in (None, "created_at"):
            raise invalid(_ANCHOR, "expected 'created_at'")
        if not (seconds.isascii() and seconds.isdigit()) or not MIN_TTL_S <= int(seconds[:9]) <= MAX_TTL_S:
            raise invalid(_TTL, f"expected {MIN_TTL_S} to {MAX_TTL_S} seconds")
        return float(seconds)

    def _text(self, name: str) -> str | None:
        if name not in self._fields:
            return None
        try:
            return self._fields[name].decode()
        except UnicodeDecodeError as error:
            raise invalid(name, "not valid UTF-8") from error


def _cleaned(filename: str | None) -> str:
    """It goes into answers and headers: the last part of its path, and nothing that could break a line."""
    name = (filename or "").replace("\\", "/").rpartition("/")[2]
    return "".join(c if c.isprintable() else "_" for c in name)[:MAX_FILENAME] or "file"
