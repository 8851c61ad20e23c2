"""The config as it may be shown: what could hold a secret is left out of it."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.config import Config

HIDDEN = "***"
WITH_PATH = ("base_url", "database_url", "redis_url")  # a webhook's may be what opens it


def shown(config: Config) -> dict[str, Any]:
    """As in config.toml, with defaults. Values of headers are hidden, and of URLs logins, queries and, but for
    databases and providers, paths.
    """
    tree: dict[str, Any] = _without_secrets(msgspec.to_builtins(config), "")
    return tree


def _without_secrets(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if name == "headers" else _without_secrets(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(inner, name) for inner in value]
    return _shortened(value, name in WITH_PATH) if isinstance(value, str) and "://" in value else value


def _shortened(url: str, with_path: bool) -> str:
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return HIDDEN
    login = f"{HIDDEN}@" if "@" in parts.netloc else ""
    hidden = f"?{HIDDEN}" if parts.query else ""
    path = parts.path if with_path else f"/{HIDDEN}"
    return f"{parts.scheme}://{login}{host}{port}{path}{hidden}"
