"""A client on a bare socket: bytes and their arrival as they are, and a way to hang up."""

import json
import socket
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Received:
    """A response as it reached the client."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)  # seconds since the request, and what came
    complete: bool = False  # the framing ended as it should

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def events(self) -> list[str]:
        """The data of each server-sent event, read as the standard says."""
        found: list[str] = []
        data: list[str] = []
        for line in self.raw.decode().replace("\r\n", "\n").split("\n"):
            if line == "" and data:
                found.append("\n".join(data))
                data = []
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
        return found

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def text(self) -> str:
        deltas = [choice["delta"] for chunk in self.chunks for choice in chunk.get("choices") or []]
        return "".join(delta.get("content") or "" for delta in deltas)


class RawClient:
    def __init__(self, base_url: str, key: str, timeout_s: float = 20.0) -> None:
        url = urllib.parse.urlsplit(base_url)
        assert url.hostname is not None
        self._address = (url.hostname, url.port or 80)
        self._base = url.path.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s

    def send(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> socket.socket:
        """The connection, once the request is on its way."""
        payload = json.dumps(body).encode()
        fields = {
            "Host": "{}:{}".format(*self._address),
            "Authorization": f"Bearer {self._key}",
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
        } | (headers or {})
        lines = [f"POST {self._base}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        connection = socket.create_connection(self._address, timeout=self._timeout_s)
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + payload)
        return connection

    def call(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> Received:
        started = time.monotonic()
        received = Received()
        with self.send(path, body, headers) as connection, connection.makefile("rb") as stream:
            received.status = int(stream.readline().split()[1])
            while (line := stream.readline().strip()) != b"":
                name, _, value = line.decode("latin-1").partition(":")
                received.headers[name.lower()] = value.strip()
            for piece in _body(stream, received):
                received.arrivals.append((time.monotonic() - started, piece))
                received.raw += piece
        return received


def _body(stream: Any, received: Received) -> Any:
    """The body's pieces as they come; sets `complete` if the framing says that this was all."""
    if "chunked" not in received.headers.get("transfer-encoding", ""):
        size = int(received.headers.get("content-length", "0"))
        data = stream.read(size)
        received.complete = len(data) == size
        yield data
        return
    while size := int(stream.readline().partition(b";")[0] or b"-1", 16):
        if size < 0:
            return
        data = stream.read(size)
        if len(data) < size:
            return
        stream.readline()
        yield data
    received.complete = True
