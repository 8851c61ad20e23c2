"""The page itself: HTML with its style and script inside, so that one request brings all of it."""

import base64
import hashlib
from functools import cache
from importlib.resources import files


@cache
def page() -> bytes:
    html, style, script = _parts()
    return html.replace("/* style */", style).replace("/* script */", script).encode()


@cache
def headers() -> dict[str, str]:
    """To send with the page: it may run its own script, talk to this gateway, and nothing else."""
    _, style, script = _parts()
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; style-src-attr 'none'"
    policy += "; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return {
        "content-security-policy": policy,
        "cache-control": "no-cache",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def _parts() -> tuple[str, str, str]:
    folder = files("gateway.dashboard")
    html, style, script = (folder.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    return html, style, script


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
