"""Everything the router raises on purpose.

RoutingError
├── PolicyError        a policy that contradicts itself, with every fault found
├── UnknownTier        a tier that the policy does not name
├── NoCapableModel     no model of any eligible tier has a needed capability
├── HeadMismatch       the trained head belongs to another embedder, or to other features
└── TrainingError      too few or malformed training rows
"""


class RoutingError(Exception):
    """Base of all errors of this package."""


class PolicyError(RoutingError):
    """One or more faults, each a line that starts with where it is."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class UnknownTier(RoutingError):
    def __init__(self, tier: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown tier {tier!r}; there are: {', '.join(known)}")
        self.tier = tier


class NoCapableModel(RoutingError):
    def __init__(self, missing: str) -> None:
        super().__init__(f"no model can do this request: it needs {missing}")
        self.missing = missing


class HeadMismatch(RoutingError):
    pass


class TrainingError(RoutingError):
    pass
