"""Norms, gates and softcap against their definitions in float64, and each row against itself in other company."""

import pytest
import torch

from kernels.cpu import pointwise
from kernels.cpu.program import Machine

SHAPES = [(1, 32), (5, 576), (33, 96), (3, 4128)]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool(((found.double() - wanted).abs() <= 0.004 * wanted.abs() + 1e-6).all())  # bfloat16: half of 1 / 128


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt() * weight


@pytest.mark.parametrize(("rows", "size"), SHAPES)
def test_norms(machine: Machine, rows: int, size: int) -> None:
    residual, update, weight = random(rows, size), random(rows, size, seed=1).bfloat16(), random(size, seed=2)
    total = residual + update.float()
    changed = residual.clone()
    assert close(pointwise.add_rms_norm(machine, changed, update, weight, 1e-5), normed(total, weight))
    assert torch.equal(changed, total)
    assert close(pointwise.add_rms_norm(machine, changed, None, weight, 1e-5), normed(total, weight))
    assert torch.equal(changed, total)
    assert close(pointwise.rms_norm(machine, update, weight, 1e-5), normed(update, weight))


@pytest.mark.parametrize(("rows", "size"), SHAPES)
def test_gates(machine: Machine, rows: int, size: int) -> None:
    gate = (random(rows, size) * 30).bfloat16()
    gate[0, :4] = torch.tensor([0.0, -0.0, 300.0, -300.0])
    up = random(rows, size, seed=1).bfloat16()
    gate_up, x = torch.cat([gate, up], dim=1), gate.double()
    assert close(pointwise.gated(machine, gate_up, "silu"), torch.nn.functional.silu(x) * up)
    gelu = torch.nn.functional.gelu(x, approximate="tanh") * up
    # Its negative tail is a difference of nearly equal numbers, in any float32 implementation.
    assert ((pointwise.gated(machine, gate_up, "gelu_tanh").double() - gelu).abs() <= 0.004 * gelu.abs() + 5e-5).all()


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (1, 17), (3, 4096), (2, 9001)])
def test_softcap(machine: Machine, rows: int, size: int) -> None:
    logits = random(rows, size) * 60
    wanted = 30 * torch.tanh(logits.double() / 30)
    pointwise.softcap(machine, logits, 30.0)
    assert (logits - wanted).abs().max() < 1e-4


def test_what_is_not_a_number_stays_so(machine: Machine) -> None:
    """A broken model file must be noticed, not smoothed over."""
    nan, weight = torch.full((1, 64), torch.nan), torch.ones(64)
    assert pointwise.rms_norm(machine, nan.bfloat16(), weight, 1e-5).isnan().all()
    assert pointwise.add_rms_norm(machine, nan.clone(), None, weight, 1e-5).isnan().all()
    assert pointwise.gated(machine, nan.bfloat16(), "silu").isnan().all()
    assert pointwise.gated(machine, nan.bfloat16(), "gelu_tanh").isnan().all()
    pointwise.softcap(machine, nan, 30.0)
    assert nan.isnan().all()


def test_a_row_is_the_same_in_any_company(machine: Machine) -> None:
    x, weight = random(33, 96).bfloat16(), random(48, seed=1)
    update = random(33, 48, seed=2).bfloat16()

    def results(rows: slice) -> tuple[torch.Tensor, ...]:
        part, residual = x[rows].contiguous(), x[rows, :48].float().contiguous()
        logits = x[rows].float().contiguous()
        pointwise.softcap(machine, logits, 2.0)
        normed = pointwise.add_rms_norm(machine, residual, update[rows].contiguous(), weight, 1e-5)
        gates = [pointwise.gated(machine, part, activation) for activation in ("silu", "gelu_tanh")]
        return residual, normed, pointwise.rms_norm(machine, part, torch.cat([weight, weight]), 1e-5), logits, *gates

    together = results(slice(33))
    for first, last in [(row, row + 1) for row in range(33)] + [(0, 2), (2, 19), (19, 33)]:
        for alone, all_rows in zip(results(slice(first, last)), together, strict=True):
            assert torch.equal(alone, all_rows[first:last])
