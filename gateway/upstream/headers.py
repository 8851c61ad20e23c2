"""Where requests to a provider go, and their headers: what all of them have in common, and what is each one's own."""

from collections.abc import Iterable

import httpx

from gateway.config import ProviderConfig

# Of the client's headers only those that can't change the answer: all tenants share the operator's account and the
# cache, so one's `idempotency-key: 1` would be another's call, and one's `openai-beta` another's answer.
FORWARDED = {"traceparent", "tracestate"}


def url_below(base_url: str, path: str) -> httpx.URL:
    """A query of the base URL (`?api-version=...`) stays behind the path."""
    url = httpx.URL(base_url)
    return url.copy_with(path=f"{url.path.rstrip('/')}/{path}")


def request_head(url: httpx.URL, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The lines that all requests to a URL have in common."""
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"POST %b HTTP/1.1\r\n%b" % (url.raw_path, lines)


def base_headers(provider: ProviderConfig, credentials: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Raises ValueError for a header that can't be sent."""
    headers = {
        "host": httpx.URL(provider.base_url).netloc.decode("ascii"),
        "user-agent": "tollhouse",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",  # answers are short, and a compressed stream comes in bursts
        "content-type": "application/json",
    } | credentials
    headers |= {name.lower(): value for name, value in provider.headers.items()}
    for name, value in headers.items():
        if not _is_one_line(name) or not _is_one_line(value):
            raise ValueError(
                f"provider {provider.name}: the header {name!r} has a line break or other control character"
            )
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """As they go over the wire, names in lower case."""
    encoded = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers]
    return b"".join([b"%b: %b\r\n" % header for header in encoded])


def split_line(line: bytes) -> tuple[bytes, bytes]:
    """Of `header_lines`, without its end."""
    name, _, value = line.partition(b": ")
    return name, value


def may_go_on(name: str, value: str) -> bool:
    """Whether a client's header may be passed on."""
    return name.lower() in FORWARDED and _is_one_line(value)


def _is_one_line(text: str) -> bool:
    return all(character >= " " for character in text)
