"""Everything the router raises on purpose.

RoutingError
├── UnknownTier        a tier that the policy does not name
├── NoCapableModel     no model of any eligible tier has a needed capability
├── HeadMismatch       the trained head belongs to another embedder
└── TrainingError      too few or malformed training rows
"""


class RoutingError(Exception):
    """Base of all errors of this package."""


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
