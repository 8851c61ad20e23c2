"""Posts a signed JSON message to somebody's URL: no redirects, no proxies, bounded in time, to allowed addresses only.

The signature has the form of Stripe's: `t=<seconds>,v1=<hex HMAC-SHA256 of "<seconds>.<body>">`. A receiver computes it
anew over the bytes as they came, compares in constant time, and refuses a `t` that is minutes old.
"""

import asyncio
import hashlib
import hmac
import time

import httpx

from gateway.upstream.address_guard import ForbiddenAddress, Guard, check_url
from gateway.upstream.transport import Transport

SIGNATURE = "x-tollhouse-signature"
MAX_CONNECTIONS = 32


class WebhookFailed(Exception):
    """`worth_retrying`: another time it might be taken."""

    def __init__(self, message: str, *, worth_retrying: bool = True) -> None:
        super().__init__(message)
        self.worth_retrying = worth_retrying


def sign(secret: str, body: bytes, at: int) -> str:
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


class WebhookClient:
    """`aclose` after use."""

    def __init__(self, secret: str, *, allow_private: bool = False, timeout_s: float = 10.0) -> None:
        self._secret = secret
        self._timeout_s = timeout_s
        self._guard: Guard = "not-metadata" if allow_private else "public"
        self._transport = Transport(max_connections=MAX_CONNECTIONS, max_idle=0, guard=self._guard)

    async def post(self, url: str, event: str, body: bytes) -> None:
        """Returns once the receiver has said 2xx. Raises WebhookFailed."""
        try:
            check_url(url, self._guard)
            async with asyncio.timeout(self._timeout_s):
                status = await self._send(url, event, body)
        except (ForbiddenAddress, httpx.InvalidURL) as error:
            raise WebhookFailed(str(error), worth_retrying=False) from error
        except TimeoutError as error:
            raise WebhookFailed(f"no answer within {self._timeout_s:g} s") from error
        except httpx.HTTPError as error:
            forbidden = isinstance(error.__cause__, ForbiddenAddress)
            raise WebhookFailed(str(error), worth_retrying=not forbidden) from error
        if not 200 <= status < 300:
            again = status >= 500 or status in (408, 409, 425, 429)
            raise WebhookFailed(f"it was answered with HTTP {status}", worth_retrying=again)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _send(self, url: str, event: str, body: bytes) -> int:
        headers = {
            "content-type": "application/json",
            "user-agent": "tollhouse",
            "x-tollhouse-event": event,
            SIGNATURE: sign(self._secret, body, int(time.time())),
        }
        request = httpx.Request("POST", url, headers=headers, content=body)
        response = await self._transport.handle_async_request(request)
        await response.aclose()  # what it has to say is of no interest
        return response.status_code
