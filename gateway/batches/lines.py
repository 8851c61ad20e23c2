"""The lines of an input file as they are read, and whether a batch can run over them."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Literal

from gateway.batches.types import Batch
from gateway.errors import ApiError
from gateway.files.files import Files
from gateway.house import House, Snapshot
from gateway.routes import check_name
from gateway.tenants.types import Scope
from gateway.wire.batch_lines import Fault, Line, parse_line

MAX_LINES = 50_000  # OpenAI's
MAX_FAULTS = 100  # that are told
PATHS: dict[str, Literal["chat", "embedding"]] = {  # a batch's endpoint -> what its models must be
    "/v1/chat/completions": "chat",
    "/v1/completions": "chat",
    "/v1/embeddings": "embedding",
    "/v1/responses": "chat",
}


class LineTooLong(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(f"line {number} is too long")
        self.number = number


async def read_lines(files: Files, file_id: str, max_bytes: int) -> AsyncIterator[tuple[int, bytes]]:
    """(number from 1, bytes) of each line that is not blank. One line at a time is in memory. Raises LineTooLong."""
    number, rest = 0, bytearray()
    async for part in files.parts(file_id):
        *lines, last = part.split(b"\n")
        for line in lines:
            number += 1
            rest += line
            if rest.strip():
                yield number, bytes(rest)
            rest.clear()
        rest += last
        if len(rest) > max_bytes:
            raise LineTooLong(number + 1)
    if rest.strip():
        yield number + 1, bytes(rest)


async def check_lines(house: House, batch: Batch, scope: Scope | None, max_bytes: int) -> tuple[int, list[Fault]]:
    """How many requests there are, and what is wrong with them, of all faults the first ones."""
    seen: set[bytes] = set()
    faults: list[Fault] = []
    try:
        async for number, raw in read_lines(house.files, batch.input_file_id, max_bytes):
            line = parse_line(raw, number, batch.endpoint)
            if isinstance(line, Fault):
                faults.append(line)
            else:
                faults += _faults_of(line, number, seen, house.snapshot, scope)
                seen.add(_digest(line.custom_id))
            if len(faults) >= MAX_FAULTS:
                break
            if len(seen) > MAX_LINES:
                faults.append(Fault("too_many_tasks", f"A batch has at most {MAX_LINES} requests.", number))
                break
    except LineTooLong as error:
        faults.append(Fault("line_too_long", f"A line has at most {max_bytes} bytes.", error.number))
    if not seen and not faults:
        faults.append(Fault("empty_file", "The input file is empty."))
    return len(seen), faults


def _faults_of(line: Line, number: int, seen: set[bytes], snapshot: Snapshot, scope: Scope | None) -> Iterator[Fault]:
    if _digest(line.custom_id) in seen:
        message = f"The custom_id {line.custom_id[:100]!r} is given more than once."
        yield Fault("duplicate_custom_id", message, number, "custom_id")
    try:
        check_name(line.model, PATHS[line.url], scope, snapshot)
    except ApiError as error:
        yield Fault(error.name, error.message, number, "body.model")


def _digest(custom_id: str) -> bytes:
    """As good as the name itself, and never long."""
    return hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
