"""The torch twin by itself: right, and with the same bits for a row in any company."""

import pytest
import torch

from kernels.reference import ReferenceOperations

TWIN = ReferenceOperations(torch.device("cpu"))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(33, 18), (960, 576), (576, 1536), (96, 192), (9000, 32)])
def test_products(shape: tuple[int, int]) -> None:
    matrix, x, bias = random(*shape), random(70, shape[1], seed=1), random(shape[0], seed=2)
    packed = TWIN.pack([matrix[:20], matrix[20:]], bias)
    together = TWIN.logits(x, packed, 0)
    wanted = x.double() @ matrix.double().T + bias
    assert (together - wanted).abs().max() < 1e-5 * wanted.abs().max()
    for rows in (*range(1, 18), 33, 64):
        assert torch.equal(TWIN.logits(x[:rows], packed, 0), together[:rows])
    assert torch.equal(TWIN.logits(x[50:51], packed, 0), together[50:51])


@pytest.mark.parametrize("size", [33, 64, 96])
def test_norms_and_gates(size: int) -> None:
    x, weight = random(33, size), random(size, seed=1)
    wanted = x.double() / (x.double().square().mean(1, keepdim=True) + 1e-5).sqrt() * weight
    found = TWIN.rms_norm(x, weight, 1e-5)
    assert (found - wanted).abs().max() < 1e-5 * wanted.abs().max()
    gate_up = random(33, 2 * size, seed=2)
    gated = TWIN.gated(gate_up)
    for row in range(33):
        assert torch.equal(TWIN.rms_norm(x[row : row + 1], weight, 1e-5), found[row : row + 1])
        assert torch.equal(TWIN.gated(gate_up[row : row + 1]), gated[row : row + 1])
