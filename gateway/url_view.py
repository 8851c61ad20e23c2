"""A URL as it may be shown and kept: without what could open something."""

from urllib.parse import urlsplit

HIDDEN = "***"


def without_secrets(url: str, *, with_path: bool = False) -> str:
    """Without login and query, and without its path unless that is known to be no secret (a webhook's often is)."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return HIDDEN
    login = f"{HIDDEN}@" if "@" in parts.netloc else ""
    query = f"?{HIDDEN}" if parts.query else ""
    path = parts.path if with_path or parts.path in ("", "/") else f"/{HIDDEN}"
    return f"{parts.scheme}://{login}{host}{port}{path}{query}"
