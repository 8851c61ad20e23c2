"""What limits and budgets are called in Redis: keys of a tenant, and the fields of what its requests hold."""

from gateway.tenants.periods import PERIODS, Period, period_at
from gateway.tenants.tally import Claim, What
from gateway.tenants.terms import Allowance, Quota, Terms


def held_by(claim: Claim) -> str:
    fields = [f"{slot_field(quota)}=1" for quota in claim.terms.slots] if claim.slots else []
    if claim.cost_nanousd:
        for each in claim.terms.allowances:
            fields.append(f"{dollars_field(each, period_at(each.period, claim.at))}={claim.cost_nanousd}")
    return " ".join(fields)


def slot_field(quota: Quota) -> str:
    return f"slot:{quota.owner.id}"


def dollars_field(allowance: Allowance, period: Period) -> str:
    return f"usd:{allowance.owner.id}:{period.label}"


def _key(tenant_id: str, what: str) -> str:
    return f"tollhouse:limits:{{{tenant_id}}}:{what}"  # the braces keep a tenant on one node of a cluster


def lease_keys(terms: Terms) -> list[str]:
    return [_key(terms.tenant_id, what) for what in ("leases", "held", "totals")]


def spent_key(tenant_id: str, period: Period) -> str:
    return _key(tenant_id, f"spent:{period.label}")


def spending_keys(terms: Terms, at: float) -> list[str]:
    return [spent_key(terms.tenant_id, period_at(kind, at)) for kind in PERIODS]


def bucket_key(terms: Terms, what: What, quota: Quota) -> str:
    return _key(terms.tenant_id, f"{what}:{quota.owner.id}")
