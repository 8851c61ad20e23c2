"""Two tenants of one gateway, what they may do, and what one of them can see of it."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.house import House
from gateway.tenants.registry import create_key, create_tenant
from tests.faults.misbehaving import MisbehavingUpstream

TEXTS = (
    "What is the capital of France?",
    "what's the capital of France",
    "Which city is the capital of France?",
    "How tall is Mount Everest?",
)
FORM = {"purpose": (None, "user_data"), "file": ("a.txt", b"what it says")}

# What differs from run to run, whoever else is there: ids, moments, how long something took.
_VARIES = re.compile(r"\b(?:[a-z]+[-_])?[0-9a-f]{32}(?:[0-9a-f]{4})?\b|\b1[78]\d{8}(?:\.\d+)?\b|acme-\d+")
_UNSEEN = frozenset(("date", "x-request-id"))


@dataclass(frozen=True)
class Act:
    """`who`: 0 or 1. `what`: a method of `Caller`. `about`: a text, or whose thing (0: one's own, 1: the other's)."""

    who: int
    what: str
    about: int
    how: int


@dataclass(frozen=True)
class Seen:
    """All that a caller gets of an act: the answer, and by its time whether a model was called."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str
    num_calls: int


@dataclass
class Caller:
    client: httpx.AsyncClient
    key: str
    town: str = ""
    other: "Caller | None" = None
    ids: dict[str, str] = field(default_factory=dict)  # of the newest thing of a kind

    async def chat(self, about: int, how: int) -> httpx.Response:
        model = ("echo", "auto", "echo")[how % 3]
        extra = [{}, {"stream": True}, {"user": "u"}][how // 3 % 3]
        return await self._post("chat/completions", self._chat(model, about) | extra)

    async def chat_in_namespace(self, about: int, how: int) -> httpx.Response:
        headers = {"x-tollhouse-namespace": ("shared", "a:b", "")[how % 3]}
        return await self._post("chat/completions", self._chat("echo", about), **headers)

    async def only_if_cached(self, about: int, how: int) -> httpx.Response:
        return await self._post("chat/completions", self._chat("echo", about), **{"cache-control": "only-if-cached"})

    async def message(self, about: int, how: int) -> httpx.Response:
        return await self._post("messages", self._chat("echo", about))

    async def respond(self, about: int, how: int) -> httpx.Response:
        body: dict[str, Any] = {"model": "echo", "input": self._text(about), "store": bool(how % 2)}
        if how >= 2:
            body["previous_response_id"] = self._whose("resp", how % 2)
        return self._note("resp", await self._post("responses", body))

    async def upload(self, about: int, how: int) -> httpx.Response:
        sent = await self.client.post("/v1/files", files=FORM, headers=self._headers())
        return self._note("file", sent)

    async def look(self, about: int, how: int) -> httpx.Response:
        paths = (
            "/v1/files", "/v1/batches", "/v1/models", "/dashboard/data?by=model",
            f"/v1/files/{self._whose('file', about)}", f"/v1/files/{self._whose('file', about)}/content",
            f"/v1/responses/{self._whose('resp', about)}", f"/v1/responses/{self._whose('resp', about)}/input_items",
        )  # fmt: skip
        return await self.client.get(paths[how % len(paths)], headers=self._headers())

    async def meddle(self, about: int, how: int) -> httpx.Response:
        file, response = self._whose("file", about), self._whose("resp", about)
        if how % 4 == 0:
            return await self.client.delete(f"/v1/files/{file}", headers=self._headers())
        if how % 4 == 1:
            return await self.client.delete(f"/v1/responses/{response}", headers=self._headers())
        if how % 4 == 2:
            return await self._post(f"responses/{response}/cancel", {})
        batch = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return await self._post("batches", batch)

    def _chat(self, model: str, about: int) -> dict[str, Any]:
        return {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": self._text(about)}]}

    def _text(self, about: int) -> str:
        return f"{TEXTS[about]} {self.town}".strip()

    def _whose(self, kind: str, about: int) -> str:
        """One's own newest thing, or the other's: to ask for that must be as if it had never been."""
        owner = self.other if about % 2 else self
        return (owner.ids if owner is not None else {}).get(kind, f"{kind}{'_' if kind == 'resp' else '-'}{'0' * 32}")

    def _note(self, kind: str, response: httpx.Response) -> httpx.Response:
        if response.status_code == 200:
            self.ids[kind] = response.json()["id"]
        return response

    def _headers(self, **more: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} | more

    async def _post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return await self.client.post(f"/v1/{path}", json=body, headers=self._headers(**headers))


ACTS = ("chat", "chat_in_namespace", "only_if_cached", "message", "respond", "upload", "look", "meddle")


@dataclass
class Site:
    house: House
    client: httpx.AsyncClient
    upstream: MisbehavingUpstream
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    town: str = ""

    def new_texts(self) -> None:
        """From now on all texts are ones that nobody has asked before."""
        self.town = f"(in town {next(self._numbers)})"

    async def live(self, acts: Iterable[Act]) -> list[Seen]:
        """Two new tenants do all this; what the second one saw."""
        first, second = [Caller(self.client, await self._key(), self.town) for _ in range(2)]
        first.other, second.other = second, first
        await self.house.authenticator._watch.poll()
        seen = []
        for act in acts:
            before = len(self.upstream.received)
            answer = await getattr((first, second)[act.who], act.what)(act.about, act.how)
            await self.house.ledger.drain()
            if act.who == 1:
                seen.append(_seen(answer, len(self.upstream.received) - before))
        return seen

    async def _key(self) -> str:
        name = f"acme-{next(self._numbers)}"
        await create_tenant(self.house.database, name)
        return (await create_key(self.house.database, name)).secret


def _seen(answer: httpx.Response, num_calls: int) -> Seen:
    headers = [(name, _VARIES.sub("*", value)) for name, value in answer.headers.items() if name not in _UNSEEN]
    return Seen(answer.status_code, tuple(headers), _VARIES.sub("*", answer.text), num_calls)
