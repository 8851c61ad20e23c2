"""What this gateway's requests hold in Redis: leases that it renews for as long as they run."""

import asyncio
from contextlib import suppress

from gateway.tenants import redis_scripts as scripts
from gateway.tenants.redis_keys import held_by, lease_keys
from gateway.tenants.redis_link import RedisAway, RedisLink
from gateway.tenants.tally import Claim

_BATCH = 500  # leases renewed in one call


class Leases:
    """`aclose` after use: what is still held then comes free by itself."""

    def __init__(self, link: RedisLink, lease_s: float) -> None:
        self.length_ms = int(lease_s * 1000)
        self.claims: dict[str, Claim] = {}  # by request
        self._link = link
        self._renewing: asyncio.Task[None] | None = None

    def keep(self, claim: Claim) -> None:
        self.claims[claim.id] = claim
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew_forever(), name="renew leases")

    def forget(self, claim: Claim) -> None:
        """It is renewed no more."""
        self.claims.pop(claim.id, None)

    async def renew(self) -> None:
        """All of them, and what Redis has lost of them is put back."""
        by_tenant: dict[str, list[Claim]] = {}
        for claim in self.claims.values():
            by_tenant.setdefault(claim.terms.tenant_id, []).append(claim)
        for claims in by_tenant.values():
            for start in range(0, len(claims), _BATCH):
                with suppress(RedisAway):  # tried again next time
                    await self._renew(claims[start : start + _BATCH])

    async def aclose(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew(self, claims: list[Claim]) -> None:
        """Of one tenant. Whoever was settled meanwhile may have been put back: it is let go again."""
        keys = lease_keys(claims[0].terms)
        arguments = [part for claim in claims for part in (claim.id, held_by(claim))]
        await self._link.run_on(scripts.RENEW, keys, [self.length_ms, *arguments])
        if gone := [claim.id for claim in claims if claim.id not in self.claims]:
            await self._link.run_on(scripts.RELEASE, keys, gone)

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self.length_ms / 3000)
            await self.renew()
