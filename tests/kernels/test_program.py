"""A recorded program computes what its kernels compute one by one, whatever memory its tensors share."""

import random
from collections.abc import Callable

import pytest
import torch

from kernels.batch import SequenceRows, TokenBatch
from kernels.cpu.embedding import embed
from kernels.cpu.pointwise import add_rms_norm, gated, rms_norm
from kernels.cpu.products import pack
from kernels.cpu.program import Machine
from kernels.operations import PackedWeight

SIZES = (32, 64, 128)
WEIGHTS = {size: torch.linspace(0.5, 2.0, size) for size in (16, 32, 64, 128)}


def table(machine: Machine, size: int) -> PackedWeight:
    return pack(machine, [torch.randn(50, size, generator=torch.Generator().manual_seed(size))])


def token_ids(rows: int) -> torch.Tensor:
    return torch.randint(50, (rows,), generator=torch.Generator().manual_seed(rows))


def random_function(machine: Machine, seed: int) -> Callable[..., torch.Tensor]:
    """Sixty operations on results of earlier ones, some long ago, some changed in place; the same at each call."""

    def function(tokens: torch.Tensor, rows: int) -> torch.Tensor:
        draw = random.Random(seed)
        residuals = [embed(machine, tokens, table(machine, size), 1.0) for size in SIZES]
        made = [add_rms_norm(machine, each, None, WEIGHTS[each.shape[1]], 1e-5) for each in residuals]
        for _ in range(60):
            x = draw.choice(made[-draw.randint(1, len(made)) :])
            size = x.shape[1]
            same = [each for each in residuals if each.shape[1] == size]
            kind = draw.choice(["norm", "gate", "residual", "residual", "embed"])
            if kind == "residual" and same:
                made.append(add_rms_norm(machine, draw.choice(same), x, WEIGHTS[size], 1e-5))
            elif kind == "gate" and size > 16:
                made.append(gated(machine, x, "silu"))
            elif kind == "embed":
                residuals.append(embed(machine, tokens, table(machine, draw.choice(SIZES)), 0.5))
            else:
                made.append(rms_norm(machine, x, WEIGHTS[size], 1e-5))
        return made[-1]

    return function


@pytest.mark.parametrize("seed", range(12))
def test_a_program_is_its_kernels_one_by_one(machine: Machine, seed: int) -> None:
    function = random_function(machine, seed)
    program = machine.record(function, 40)
    for rows in (3, 40, 1, 17, 3):
        assert torch.equal(program(token_ids(rows), 0), function(token_ids(rows), 0))


def test_tensors_of_other_times_share_memory(machine: Machine) -> None:
    def chain(tokens: torch.Tensor, rows: int) -> torch.Tensor:
        x = add_rms_norm(machine, embed(machine, tokens, table(machine, 128), 1.0), None, WEIGHTS[128], 1e-5)
        for _ in range(100):
            x = rms_norm(machine, x, WEIGHTS[128], 1e-5)
        return x

    size, _ = machine.trace(chain, torch.empty(1000, dtype=torch.int64, device="meta"), 0).lay_out()
    row = 128 * (4 + 2) + 8  # the residual, the first norm and the token ids live at one time
    assert len(size) <= 1000 * row


def test_a_step_may_be_described_by_a_batch(machine: Machine) -> None:
    def function(tokens: torch.Tensor, batch: TokenBatch, constant: object) -> torch.Tensor:
        return embed(machine, tokens, table(machine, 32), 1.0)

    program = machine.record(function, 8)
    for rows in (8, 5):
        batch = TokenBatch([SequenceRows(0, rows, [0], rows)], torch.device("cpu"))
        assert torch.equal(
            program(token_ids(rows), batch, SIZES), embed(machine, token_ids(rows), table(machine, 32), 1.0)
        )


def test_more_rows_than_there_is_room_for(machine: Machine) -> None:
    program = machine.record(lambda tokens, rows: embed(machine, tokens, table(machine, 32), 1.0), 4)
    with pytest.raises(AssertionError):
        program(token_ids(5), 0)


def test_a_step_of_other_rows_than_the_tensor_has(machine: Machine) -> None:
    """It would be carried out beyond the arena's end."""
    program = machine.record(lambda tokens, rows: embed(machine, tokens, table(machine, 32), 1.0), 8)
    for rows in (TokenBatch([SequenceRows(0, 9, [0], 9)], torch.device("cpu")), 6):
        with pytest.raises(AssertionError):
            program(token_ids(5), rows)


def test_what_no_operation_made_is_refused(machine: Machine) -> None:
    """torch's own operations would be done while recording, and never again."""

    def function(tokens: torch.Tensor, rows: int) -> torch.Tensor:
        return rms_norm(machine, embed(machine, tokens, table(machine, 64), 1.0)[:, :32], WEIGHTS[32], 1e-5)

    with pytest.raises(AssertionError, match="by operations only"):
        machine.record(function, 4)(token_ids(1), 0)


def test_the_time_of_each_kernel(machine: Machine) -> None:
    program = machine.record(random_function(machine, 0), 8)
    wanted = program(token_ids(8), 0).clone()
    seconds = program.seconds_of_kernels(token_ids(8), 0)
    assert set(seconds) == {"embed", "add_rms_norm", "rms_norm", "gated_silu"}
    assert min(seconds.values()) > 0
    assert torch.equal(program(token_ids(8), 0), wanted)
