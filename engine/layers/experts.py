"""The sparse feed-forward layer: a router picks a few experts for each token. Knows no model family."""

import torch

from kernels.batch import TokenBatch
from kernels.operations import ExpertRule, Operations, PackedWeight


class MixtureOfExperts:
    """Shazeer et al. 2017, arXiv:1701.06538. `router` packs [experts, hidden]; `experts` is from `pack_experts`."""

    def __init__(self, operations: Operations, router: PackedWeight, experts: PackedWeight, rule: ExpertRule) -> None:
        self._operations = operations
        self._router = router
        self._experts = experts
        self._rule = rule

    def __call__(self, x: torch.Tensor, batch: TokenBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        scores = self._operations.linear(x, self._router, batch)  # [T, experts]
        return self._operations.experts(x, scores, self._experts, self._rule, batch)
