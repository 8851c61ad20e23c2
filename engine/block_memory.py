"""Where the KV of blocks lies: the cache on the model's device, and room in host memory for what is swapped out."""

from collections.abc import Sequence

import torch

from engine.plan import Transfer
from kernels.operations import KVCache


class BlockMemory:
    """Carries out transfers of whole blocks. Knows nothing of who holds them."""

    def __init__(self, cache: KVCache, num_host_blocks: int) -> None:
        self.cache = cache
        self.num_host_blocks = num_host_blocks
        on_gpu = any(tensor.is_cuda for tensor in cache.tensors)
        self._host = [
            torch.empty((num_host_blocks, *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=on_gpu)
            for tensor in cache.tensors
        ]

    def carry_out(self, transfers: Sequence[Transfer]) -> None:
        """In their order: a block that is copied out may be the target of the next copy."""
        for transfer in transfers:
            for device, host in zip(self.cache.tensors, self._host, strict=True):
                source = host if transfer.kind == "in" else device
                target = host if transfer.kind == "out" else device
                target[transfer.target].copy_(source[transfer.source])
