"""The config as it may be shown: what could hold a secret is left out of it."""

from typing import Any

import msgspec

from gateway.config import Config
from gateway.url_view import HIDDEN, without_secrets

WITH_PATH = ("base_url", "database_url", "redis_url")


def shown(config: Config) -> dict[str, Any]:
    """As in config.toml, with defaults. Values of headers are hidden, and what could be secret in a URL."""
    tree: dict[str, Any] = _without_secrets(msgspec.to_builtins(config), "")
    return tree


def _without_secrets(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if name == "headers" else _without_secrets(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(inner, name) for inner in value]
    is_url = isinstance(value, str) and "://" in value
    return without_secrets(value, with_path=name in WITH_PATH) if is_url else value
