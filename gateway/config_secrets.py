"""The secrets that a config leads to: values of the variables and headers that it names, and the admin key."""

import os
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from gateway.config import Config
from gateway.tenants.admin_key import VARIABLE

# Headers that are no secrets, whatever they say: hiding their values would only make logs hard to read.
_PLAIN = frozenset(
    ("accept", "content-type", "host", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta")
)


def secrets_of(config: Config) -> Iterator[str]:
    """All that no log may hold; empty strings among them."""
    yield os.environ.get(VARIABLE, "").strip()
    yield config.webhooks.secret
    for provider in config.provider:
        yield provider.api_key
        for name, value in provider.headers.items():
            if name.lower() not in _PLAIN:
                yield value
                yield value.rpartition(" ")[2]  # behind "Bearer"
    for url in (config.store.database_url, config.store.redis_url):
        yield from _password(url)


def _password(url: str) -> Iterator[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return
    yield password
    yield unquote(password)
