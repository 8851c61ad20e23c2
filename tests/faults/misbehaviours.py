"""The behaviours of the misbehaving upstream, each under the model name that asks for it."""

import asyncio
import base64
import email.utils
import gzip
import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

from tests.faults.misbehaving import Script, Wire

SCRIPTS: dict[str, Script] = {}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
VECTOR = [5.0, -0.5, 0.25]
TEXT = "日本語 🙂 naïve"
FOREVER_S = 60.0


def behaviour(*names: str) -> Callable[[Script], Script]:
    def register(script: Script) -> Script:
        for name in names:
            SCRIPTS[name] = script
        return script

    return register


def completion(content: str | None = "ok", **top: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    base = {"id": "chatcmpl-m", "object": "chat.completion", "created": 1700000000, "model": "mock"}
    return base | {"choices": [choice], "usage": USAGE} | top


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **top: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    base = {"id": "chatcmpl-m", "object": "chat.completion.chunk", "created": 1700000000, "model": "mock"}
    return base | {"choices": choices} | top


ROLE = chunk({"role": "assistant", "content": ""})
TOKEN = chunk({"content": "x"})
STOP = chunk({}, "stop")


def error(
    message: str, code: str | None, kind: str = "invalid_request_error", param: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


# Good behaviour, in all its forms.


@behaviour("ok")
async def ok(wire: Wire) -> None:
    if wire.request.path.partition("?")[0].endswith("/embeddings"):
        packed = base64.b64encode(struct.pack("<3f", *VECTOR)).decode()
        vector: Any = packed if wire.request.json.get("encoding_format") == "base64" else VECTOR
        data = [{"object": "embedding", "index": 0, "embedding": vector}]
        await wire.json(
            {"object": "list", "data": data, "model": "mock", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        )
    elif wire.request.raw and wire.request.json.get("stream"):
        await ok_stream(wire)
    else:
        await wire.json(
            completion(),
            headers={
                "x-request-id": "req-up",
                "x-ratelimit-remaining-requests": "9",
                "openai-organization": "org-of-the-operator",
                "openai-processing-ms": "5",
                "x-secret": "1",
            },
        )


async def ok_stream(wire: Wire) -> None:
    await wire.start_events()
    for event in (ROLE, TOKEN, TOKEN, STOP):
        await wire.event(event)
    if (wire.request.json.get("stream_options") or {}).get("include_usage"):
        await wire.event(chunk(usage=USAGE | {"prompt_tokens_details": {"cached_tokens": 0}}))
    await wire.end()


@behaviour("paced")
async def paced(wire: Wire) -> None:
    await wire.start_events()
    for number in range(8):
        await wire.event(chunk({"content": str(number)}), 0.1)
    await wire.event(STOP)
    await wire.end()


@behaviour("tools")  # three parallel calls, their arguments in pieces
async def tools(wire: Wire) -> None:
    await wire.start_events()
    await wire.event(chunk({"role": "assistant", "content": None}))
    for index, city in enumerate(("Paris", "Tokyo", "Lima")):
        call = {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": "weather", "arguments": ""},
        }
        await wire.event(chunk({"tool_calls": [call]}))
        for part in ('{"city":', f'"{city}"' + "}"):
            await wire.event(chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    await wire.event(chunk({}, "tool_calls"))
    await wire.end()


@behaviour("thinking")  # silent before its first token
async def thinking(wire: Wire) -> None:
    await asyncio.sleep(1.5)
    await ok_stream(wire)


@behaviour("late-terminator")  # the last chunk of the transfer comes well after [DONE]
async def late_terminator(wire: Wire) -> None:
    await wire.start_events()
    await wire.event(TOKEN)
    await wire.event(STOP)
    await wire.event("[DONE]", 0.6)
    await wire.raw(b"0\r\n\r\n")


@behaviour("never-terminated")
async def never_terminated(wire: Wire) -> None:
    await wire.start_events()
    await wire.event(TOKEN)
    await wire.event("[DONE]", FOREVER_S)


@behaviour("continue", "early-hints")
async def informational(wire: Wire) -> None:
    if wire.request.behaviour == "continue":
        await wire.raw(b"HTTP/1.1 100 Continue\r\n\r\n", 0.02)
    else:
        await wire.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 2, 0.02)
    await wire.json(completion())


@behaviour("close-delimited")
async def close_delimited(wire: Wire) -> None:
    await wire.json(completion(), headers={"Content-Length": ""})
    wire.half_close()


@behaviour("close-delimited-stream")
async def close_delimited_stream(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
    await wire.raw(json.dumps(TOKEN).encode() + b"\n\ndata: [DONE]\n\n")
    wire.half_close()


@behaviour("close-after")  # closes the connection after each answer, without a word
async def close_after(wire: Wire) -> None:
    await wire.json(completion())
    wire.half_close()


@behaviour("gzip", "deflate", "raw-deflate", "gzip-cut", "not-gzip", "brotli")
async def encoded(wire: Wire) -> None:
    raw = zlib.compressobj(wbits=-15)
    kinds: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
        "gzip": ("gzip", gzip.compress),
        "deflate": ("deflate", zlib.compress),
        "raw-deflate": ("deflate", lambda data: raw.compress(data) + raw.flush()),
        "gzip-cut": ("gzip", lambda data: gzip.compress(data)[:-12]),
        "not-gzip": ("gzip", bytes),
        "brotli": ("br", bytes),
    }
    name, encode = kinds[wire.request.behaviour]
    await wire.json(completion("zipped"), headers={"Content-Encoding": name}, encode=encode)


@behaviour("gzip-stream")
async def gzip_stream(wire: Wire) -> None:
    squeeze = zlib.compressobj(wbits=31)
    await wire.start_events("Content-Encoding: gzip\r\n")
    for payload in (b'{"choices":[{"index":0,"delta":{"content":"z"},"finish_reason":"stop"}]}', b"[DONE]"):
        await wire.piece(squeeze.compress(b"data: " + payload + b"\n\n") + squeeze.flush(zlib.Z_SYNC_FLUSH), 0.02)
    await wire.piece(squeeze.flush())
    await wire.raw(b"0\r\n\r\n")


# Streams that are valid and odd.


@behaviour("comments")
async def comments(wire: Wire) -> None:
    await wire.start_events()
    for _ in range(2):
        await wire.piece(b": PROCESSING\n\n", 0.03)
    await wire.event(chunk({"content": "hi"}))
    await wire.piece(b": keep-alive\n\nevent: x\nid: 3\n", 0.03)
    await wire.event(STOP)
    await wire.end()


@behaviour("loose")  # no space after "data:", CRLF, other fields
async def loose(wire: Wire) -> None:
    await wire.start_events()
    for payload in (b'{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}', b"[DONE]"):
        await wire.piece(b"event: message\r\nid: 7\r\ndata:" + payload + b"\r\n\r\n")
    await wire.raw(b"0\r\n\r\n")


@behaviour("utf8-split")
async def utf8_split(wire: Wire) -> None:
    await wire.start_events()
    data = f'data: {{"choices":[{{"index":0,"delta":{{"content":"{TEXT}"}},"finish_reason":"stop"}}]}}\n\n'.encode()
    for start in range(0, len(data), 3):
        await wire.piece(data[start : start + 3], 0.001)
    await wire.end()


@behaviour("length")  # well-formed, but cut by max_tokens
async def length(wire: Wire) -> None:
    await wire.start_events()
    for event in (ROLE, TOKEN, chunk({}, "length")):
        await wire.event(event)
    await wire.end()


@behaviour("no-done")
async def no_done(wire: Wire) -> None:
    await wire.start_events()
    await wire.event(TOKEN)
    await wire.event(STOP)
    await wire.end(done=False)


@behaviour("json-for-stream")
async def json_for_stream(wire: Wire) -> None:
    await wire.json(completion())


# Broken streams.


@behaviour("cut", "short", "stall", "error-event")
async def broken_stream(wire: Wire) -> None:
    await wire.start_events()
    for event in (ROLE, TOKEN, TOKEN, TOKEN):
        await wire.event(event, 0.02)
    match wire.request.behaviour:
        case "cut":
            await asyncio.sleep(0.1)  # a reset takes what its reader has not read yet with it
            wire.reset()
        case "short":
            await wire.end(done=False)
        case "stall":
            await asyncio.sleep(FOREVER_S)
        case "error-event":
            await wire.event(error("overheated", None, "server_error"))
            await wire.end(done=False)


@behaviour(
    "no-json", "half-json-event", "nul", "not-utf8", "lost-terminator", "bad-chunk-later", "token-then-endless"
)  # some tokens, then bytes that no stream should have; some go on as if nothing had been
async def dirty_stream(wire: Wire) -> None:
    await wire.start_events()
    for event in (ROLE, TOKEN, TOKEN, TOKEN):
        await wire.event(event, 0.02)
    match wire.request.behaviour:
        case "no-json":
            await wire.event("<html>Bad gateway</html>")
        case "half-json-event":
            await wire.event('{"choices":[{"index":0,"delta":{"cont')
        case "nul":
            await wire.piece(b"\0\0\0\0data: [DONE]\n\n")
        case "not-utf8":
            await wire.piece(b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe"}}]}\n\n')
        case "lost-terminator":
            await wire.raw(b"5\r\ndata:")
            wire.half_close()
        case "bad-chunk-later":
            await wire.raw(b"-5\r\nhello\r\n")
        case "token-then-endless":
            await wire.piece(b'data: {"x":"')
            for _ in range(400):
                await wire.piece(b"x" * 65536)
    await wire.event(STOP)
    await wire.end()


@behaviour("short-length")  # says how long it is, and is not
async def short_length(wire: Wire) -> None:
    events = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in (ROLE, TOKEN, TOKEN, TOKEN))
    await wire.raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n" + events, 0.1
    )
    wire.half_close()


@behaviour("gzip-lie", "gzip-stream-cut")
async def gzip_broken(wire: Wire) -> None:
    await wire.start_events("Content-Encoding: gzip\r\n")
    squeeze = zlib.compressobj(wbits=31)
    for _ in range(3):
        event = b"data: " + json.dumps(TOKEN).encode() + b"\n\n"
        zipped = squeeze.compress(event) + squeeze.flush(zlib.Z_SYNC_FLUSH)
        await wire.piece(event if wire.request.behaviour == "gzip-lie" else zipped, 0.02)
    await wire.raw(b"0\r\n\r\n")


@behaviour("wrong-type")  # events that are called plain text
async def wrong_type(wire: Wire) -> None:
    await wire.json(b'data: {"choices":[]}\n\ndata: [DONE]\n\n', headers={"Content-Type": "text/plain"})


@behaviour("drip")  # tokens, then a comment that comes byte by byte and never ends
async def drip(wire: Wire) -> None:
    await wire.start_events()
    for event in (ROLE, TOKEN, TOKEN, TOKEN):
        await wire.event(event)
    for _ in range(600):
        await wire.piece(b":", 0.05)


@behaviour(
    "error-named", "error-named-json", "error-named-later"
)  # told by the event's name, its data is a bare message
async def error_named(wire: Wire) -> None:
    await wire.start_events()
    await wire.event(ROLE, 0.02)
    if wire.request.behaviour == "error-named-later":
        await wire.event(TOKEN, 0.02)
    data = b'{"message":"no GPU left"}' if wire.request.behaviour == "error-named-json" else b"no GPU left"
    await wire.piece(b"event: error\ndata: " + data + b"\n\n")
    await wire.end(done=False)


@behaviour("cut-before-token", "silent-stream", "only-comments", "error-first", "error-second", "empty-stream")
async def no_token(wire: Wire) -> None:
    await wire.start_events()
    match wire.request.behaviour:
        case "cut-before-token":
            await wire.event(ROLE, 0.05)
            wire.reset()
        case "silent-stream":
            await wire.event(ROLE, FOREVER_S)
        case "only-comments":
            for _ in range(600):
                await wire.piece(b": PROCESSING\n\n", 0.1)
        case "error-first":
            await wire.event(error("no GPU left", None, "server_error"))
            await wire.end()
        case "error-second":
            await wire.event(ROLE, 0.05)
            await wire.event(error("no GPU left", None, "server_error"))
            await wire.end(done=False)
        case "empty-stream":
            await wire.end(done=False)


@behaviour("endless-event")
async def endless_event(wire: Wire) -> None:
    await wire.start_events()
    await wire.piece(b'data: {"x":"')
    for _ in range(4096):
        await wire.piece(b"x" * 65536)


@behaviour("events-unasked")
async def events_unasked(wire: Wire) -> None:
    await ok_stream(wire)


# Broken HTTP.


@behaviour("reset")
async def reset(wire: Wire) -> None:
    wire.reset()


@behaviour("close")
async def close(wire: Wire) -> None:
    wire.half_close()


@behaviour("stale")  # answers once per connection; a second request on it finds it closed
async def stale(wire: Wire) -> None:
    if wire.index == 1:
        wire.reset()
    else:
        await wire.json(completion())


@behaviour("dies-thinking")  # answers once per connection; a second request on it is read, and cut off at length
async def dies_thinking(wire: Wire) -> None:
    if wire.index == 1:
        await asyncio.sleep(0.2)
        wire.reset()
    else:
        await wire.json(completion())


@behaviour("garbage")
async def garbage(wire: Wire) -> None:
    await wire.raw(b"\x00\xff\x13\x37 this is not HTTP\r\n\r\n")


@behaviour("half-head")
async def half_head(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: applic")
    wire.half_close()


@behaviour("half-body")
async def half_body(wire: Wire) -> None:
    await wire.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"id":"c')
    wire.half_close()


@behaviour("half-chunk")
async def half_chunk(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    await wire.raw(b'400\r\n{"id":"c')
    wire.half_close()


@behaviour("bad-chunk")
async def bad_chunk(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    await wire.raw(b"zz\r\nhello\r\n0\r\n\r\n", 0.1)


@behaviour("big-head")
async def big_head(wire: Wire) -> None:
    await wire.json(completion(), headers={"x-big": "x" * 100_000})


@behaviour("endless-head")
async def endless_head(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nx-endless: ")
    for _ in range(2000):
        await wire.raw(b"x" * 4096, 0.001)


@behaviour("slow-loris")
async def slow_loris(wire: Wire) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + b"x-a: b\r\n" * 100:
        await wire.raw(bytes([byte]), 0.05)


@behaviour("upgrade")
async def upgrade(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 1.0)


@behaviour("surplus")  # a second answer that nobody asked for
async def surplus(wire: Wire) -> None:
    await wire.json(completion())
    await wire.json(completion("stolen"))


@behaviour("silence")
async def silence(wire: Wire) -> None:
    await asyncio.sleep(FOREVER_S)


@behaviour("slow")  # answers, but late
async def slow(wire: Wire) -> None:
    await asyncio.sleep(8)
    await wire.json(completion())


@behaviour("half-body-silence")
async def half_body_silence(wire: Wire) -> None:
    await wire.raw(
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"id":"c', FOREVER_S
    )


# Answers that say no, or say nothing.


@behaviour("400", "401", "403", "404", "413", "422", "500", "502", "503", "409")
async def refuse(wire: Wire) -> None:
    status = wire.request.behaviour
    body = error(f"upstream says {status} to sk-upstream-secret", f"code_{status}", param="messages")
    await wire.json(body, f"{status} Whatever")


@behaviour("gzip-400")
async def refuse_zipped(wire: Wire) -> None:
    body = error("zipped", "code_400", param="messages")
    await wire.json(body, "400 Whatever", {"Content-Encoding": "gzip"}, gzip.compress)


@behaviour("context-length")
async def context_length(wire: Wire) -> None:
    body = error("too long", "context_length_exceeded", param="messages")
    await wire.json(body, "400 Bad Request")


@behaviour("429", "429-soon", "429-date", "429-absurd", "429-silent", "503-busy")
async def busy(wire: Wire) -> None:
    name = wire.request.behaviour
    status = "503 Service Unavailable" if name == "503-busy" else "429 Too Many Requests"
    waits = {"429-soon": "1", "429-absurd": "31536000", "429-silent": "", "429": "7", "503-busy": "7"}
    wait = email.utils.formatdate(time.time() + 7, usegmt=True) if name == "429-date" else waits[name]
    if name == "429-soon" and wire.index > 0:
        await wire.json(completion())
        return
    headers = {"Retry-After": wait, "x-ratelimit-remaining-requests": "0"}
    await wire.json(error("slow down", "rate_limit_exceeded", "rate_limit_error"), status, headers)


@behaviour("flaky")  # 500, then well
async def flaky(wire: Wire) -> None:
    if wire.index == 0:
        await wire.json(error("hiccup", None, "server_error"), "500 Internal Server Error")
    else:
        await ok(wire)


@behaviour("error-in-200")
async def error_in_200(wire: Wire) -> None:
    await wire.json(error("model is loading", None, "server_error"))


@behaviour("html-400")
async def html_400(wire: Wire) -> None:
    page = b"<html>Bad Request</html>"
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page)
    await wire.raw(head + page)


@behaviour("nothing", "no-choices")  # JSON, and no answer
async def nothing(wire: Wire) -> None:
    await wire.json({"x": "y"} if wire.request.behaviour == "nothing" else completion() | {"choices": []})


@behaviour("not-json", "half-json", "html")
async def not_json(wire: Wire) -> None:
    bodies = {"not-json": b"hello", "half-json": b'{"id":"c', "html": b"<html>Bad gateway</html>"}
    kind = "text/html" if wire.request.behaviour == "html" else "application/json"
    await wire.json(bodies[wire.request.behaviour], headers={"Content-Type": kind})


@behaviour("redirect")
async def redirect(wire: Wire) -> None:
    await wire.json(b"", "302 Found", {"Location": "http://169.254.169.254/"})


@behaviour("no-content")
async def no_content(wire: Wire) -> None:
    await wire.json(b"", "204 No Content", {"Content-Length": "", "Content-Type": ""})


@behaviour("large")
async def large(wire: Wire) -> None:
    await wire.json(completion("x" * 3_000_000))
