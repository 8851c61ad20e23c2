"""The counterfactual: what the same tokens had cost on the baseline model, and who saved the difference.

With S the serving model's price for the answer and B the baseline's:

    served:  S was spent;             saved by routing = B - S
    hit:     saved by the cache = S;  saved by routing = B - S

so spent + saved by cache + saved by routing = B, always. Routing to a dearer model saves a negative amount, and that is
what the books say. What failed attempts cost on the way is in the request's cost and is nobody's saving.
"""

from collections.abc import Callable

import msgspec

from gateway.ledger.prices import PriceBook
from gateway.wire.usage import Usage


class Savings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    serving_cost_nanousd: int = 0  # S: spent, or on a hit not spent
    baseline_model: str | None = None
    baseline_cost_nanousd: int | None = None  # B; None: nothing to compare with, and then routing saved nothing
    saved_by_cache_nanousd: int = 0
    saved_by_routing_nanousd: int = 0

    def scaled(self, share: Callable[[int], int]) -> "Savings":
        """At another share of every price, the baseline's as well: the sums add up as before."""
        serving, would_cost = share(self.serving_cost_nanousd), self.baseline_cost_nanousd
        return Savings(
            serving_cost_nanousd=serving,
            baseline_model=self.baseline_model,
            baseline_cost_nanousd=None if would_cost is None else share(would_cost),
            saved_by_cache_nanousd=serving if self.saved_by_cache_nanousd else 0,
            saved_by_routing_nanousd=0 if would_cost is None else share(would_cost) - serving,
        )


NONE = Savings()


def compare(
    prices: PriceBook,
    *,
    model: str,
    provider: str = "",
    usage: Usage,
    baseline_model: str | None,
    hit: bool,
    spent: int | None = None,
    at: float | None = None,
) -> Savings:
    """`model` at `provider` gave the answer, now or when it was stored; `spent`: what that cost, where it is known.

    A baseline without a price is no baseline, nor is one paid by the hour: nobody knows how long it would have taken.
    """
    price = prices.price_at(model, provider, at)
    serving = price.cost_nanousd(usage) if spent is None else spent
    cached = serving if hit else 0
    baseline = prices.price(baseline_model, at) if baseline_model else None
    if baseline is None or not baseline.known or baseline.hour is not None:
        return Savings(serving_cost_nanousd=serving, saved_by_cache_nanousd=cached)
    would_cost = serving if baseline is price else baseline.cost_nanousd(usage)
    return Savings(
        serving_cost_nanousd=serving,
        baseline_model=baseline_model,
        baseline_cost_nanousd=would_cost,
        saved_by_cache_nanousd=cached,
        saved_by_routing_nanousd=would_cost - serving,
    )
