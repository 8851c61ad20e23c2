"""What the machine could do at best: how fast its cores together read memory."""

import time

import torch

REPEAT = 12


def read_bandwidth(num_bytes: int) -> float:
    """Bytes per second of the fastest of some passes over `num_bytes` by all of torch's threads."""
    data = torch.ones(num_bytes // 4)
    best = float("inf")
    for _ in range(REPEAT):
        start = time.perf_counter()
        data.sum()
        best = min(best, time.perf_counter() - start)
    return num_bytes / best
