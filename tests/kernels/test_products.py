"""Products and experts of every instruction set against their definition; each row against itself in other company."""

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernels.batch import SequenceRows, TokenBatch
from kernels.cpu.build import LEVELS, KernelUnavailableError
from kernels.cpu.operations import CpuOperations
from kernels.matrix import Matrix, QuantisedMatrix, dense
from kernels.operations import ExpertRule
from kernels.reference import ReferenceOperations

CPU = torch.device("cpu")


def implementations() -> list[CpuOperations]:
    """What this machine can run, with and without a copy of the weights for prompts."""
    found = []
    for level in LEVELS.values():
        try:
            found += [CpuOperations(level, bf16_copy=True), CpuOperations(level, bf16_copy=False)]
        except KernelUnavailableError:
            continue
    return found


IMPLEMENTATIONS = implementations()
pytestmark = pytest.mark.skipif(not IMPLEMENTATIONS, reason="no compiler, or not one of the instruction sets")
BY_NAME = [f"{each.name}-{'codes' if i % 2 else 'copy'}" for i, each in enumerate(IMPLEMENTATIONS)]


@pytest.fixture(params=IMPLEMENTATIONS, ids=BY_NAME)
def operations(request: pytest.FixtureRequest) -> CpuOperations:
    return request.param


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def quantised(bits: int, outputs: int, inputs: int, seed: int = 1) -> QuantisedMatrix:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 1 << bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    scales = torch.rand(outputs, inputs // 32, generator=generator) / (1 << bits)
    minimums = -scales * (1 << bits - 1) * (0.5 + torch.rand(outputs, inputs // 32, generator=generator))
    return QuantisedMatrix(bits, codes, scales.half(), minimums.half())


def batch(generated: int, prompt: int) -> TokenBatch:
    """Rows of so many generated tokens and, behind them, of one prompt."""
    sequences = [SequenceRows(7, 1, [0], num_prompt=7) for _ in range(generated)]
    if prompt:
        sequences.append(SequenceRows(0, prompt, range(-(-prompt // 16)), num_prompt=prompt))
    return TokenBatch(sequences, CPU)


def int8_groups(x: torch.Tensor) -> torch.Tensor:
    """What is left of activations as int8 in groups of 32 with a common scale."""
    groups = x.float().view(len(x), -1, 32)
    largest = groups.abs().amax(-1, keepdim=True)
    return ((groups * (127 / largest)).round() * (largest / 127)).view(x.shape)


def product(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return (x.double() @ matrix.double().T).float()


def deviation(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.float() - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", [(1, 16, 32), (7, 33, 64), (8, 100, 96), (13, 40, 576), (40, 960, 160)])
def test_generated_rows_meet_the_codes_as_int8(
    operations: CpuOperations, bits: int, shape: tuple[int, int, int]
) -> None:
    rows, outputs, inputs = shape
    matrix, x = quantised(bits, outputs, inputs), random(rows, inputs).bfloat16()
    found = operations.logits(x, operations.pack([matrix]), rows)
    wanted = product(int8_groups(x), matrix.dequantise())
    assert deviation(found, wanted) < 2e-3  # a code that lies halfway may be rounded either way
    assert deviation(found, product(x, matrix.dequantise())) < 0.03


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", [(1, 16, 32), (16, 33, 64), (17, 100, 96), (130, 40, 576)])
def test_prompt_rows_meet_the_weights_as_bfloat16(
    operations: CpuOperations, bits: int, shape: tuple[int, int, int]
) -> None:
    rows, outputs, inputs = shape
    matrix, x = quantised(bits, outputs, inputs), random(rows, inputs).bfloat16()
    found = operations.logits(x, operations.pack([matrix]), 0)
    assert deviation(found, product(x, matrix.dequantise().bfloat16())) < 1e-3  # codes may be rounded once or twice


@pytest.mark.parametrize("shape", [(1, 16, 32), (12, 50, 18), (33, 100, 80), (130, 64, 1536)])
def test_floats_are_bfloat16_for_both_roles(operations: CpuOperations, shape: tuple[int, int, int]) -> None:
    rows, outputs, inputs = shape
    matrix, x = random(outputs, inputs, seed=1), random(rows, inputs).bfloat16()
    packed = operations.pack([matrix])
    found = operations.logits(x, packed, rows // 2)
    assert deviation(found, product(x, matrix.bfloat16())) < 1e-5
    assert torch.equal(found, operations.logits(x, packed, 0))


def test_stacked_parts_of_any_form_each_give_their_columns(operations: CpuOperations) -> None:
    parts: list[Matrix] = [quantised(4, 40, 64), random(21, 64, seed=2), quantised(8, 16, 64, seed=3)]
    bias, x = random(77, seed=4), random(30, 64).bfloat16()
    packed = operations.pack(parts, bias)
    for generated in (0, 11, 30):
        found = operations.linear(x, packed, batch(generated, 30 - generated))
        alone = torch.cat([operations.logits(x, operations.pack([part]), generated) for part in parts], dim=1)
        assert torch.equal(found, (alone + bias).bfloat16())


def weights(outputs: int, inputs: int) -> list[Matrix]:
    return [quantised(4, outputs, inputs), quantised(8, outputs, inputs), random(outputs, inputs, seed=1)]


@pytest.mark.parametrize("shape", [(96, 160), (50, 64)])
def test_a_row_has_the_same_bits_alone_and_in_any_company(operations: CpuOperations, shape: tuple[int, int]) -> None:
    x = random(66, shape[1]).bfloat16()
    for matrix in weights(*shape):
        packed = operations.pack([matrix])
        as_generated, as_prompt = operations.logits(x, packed, 66), operations.logits(x, packed, 0)
        for rows in (*range(1, 34), 48, 65):
            assert torch.equal(operations.logits(x[:rows], packed, rows), as_generated[:rows])
            assert torch.equal(operations.logits(x[:rows], packed, 0), as_prompt[:rows])
            mixed = operations.logits(x, packed, rows)
            assert torch.equal(mixed, torch.cat([as_generated[:rows], as_prompt[rows:]]))
        assert torch.equal(operations.logits(x[60:61].contiguous(), packed, 1), as_generated[60:61])


def test_generated_rows_have_the_same_bits_for_every_instruction_set() -> None:
    x = random(21, 96).bfloat16()
    for matrix in (quantised(4, 50, 96), quantised(8, 50, 96)):
        first, *others = (each.logits(x, each.pack([matrix]), 21) for each in IMPLEMENTATIONS)
        assert all(torch.equal(first, other) for other in others)


def test_a_copy_changes_no_bit() -> None:
    x = random(40, 96).bfloat16()
    for matrix in (quantised(4, 50, 96), quantised(8, 50, 96)):
        for copy, codes in zip(IMPLEMENTATIONS[::2], IMPLEMENTATIONS[1::2], strict=True):
            with_copy = copy.logits(x, copy.pack([matrix]), 9)
            assert torch.equal(with_copy, codes.logits(x, codes.pack([matrix]), 9))


@pytest.mark.parametrize("size", [1e-7, 1.0, 1e6])
def test_scales_beyond_float16_keep_their_worth(operations: CpuOperations, size: float) -> None:
    matrix, x = quantised(4, 32, 64), random(3, 64).bfloat16()
    scales, minimums = matrix.scales.float() * size * 1.0001, matrix.minimums.float() * size * 1.0001
    matrix = QuantisedMatrix(4, matrix.codes, scales, minimums)
    wanted = product(int8_groups(x), matrix.dequantise())
    assert deviation(operations.logits(x, operations.pack([matrix]), 3), wanted) < 2e-3
    assert deviation(operations.logits(x, operations.pack([matrix]), 0), product(x, matrix.dequantise())) < 0.01


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_stays_in_its_row_and_shows(operations: CpuOperations, bad: float) -> None:
    x = random(12, 64).bfloat16()
    x[3, 40] = x[9, 5] = bad
    for matrix in weights(32, 64):
        found = operations.logits(x, operations.pack([matrix]), 6)
        finite = found.isfinite()
        assert not finite[[3, 9]].any()
        assert finite[[i for i in range(12) if i not in (3, 9)]].all()


def test_zeros_give_zero(operations: CpuOperations) -> None:
    for matrix in weights(32, 64):
        assert not operations.logits(torch.zeros(12, 64, dtype=torch.bfloat16), operations.pack([matrix]), 6).any()


def expert_matrices(form: int, experts: int, size: int, inner: int) -> tuple[list[tuple[Matrix, Matrix]], list[Matrix]]:
    def matrix(outputs: int, inputs: int, seed: int) -> Matrix:
        if form == 16:
            return random(outputs, inputs, seed=seed).bfloat16() * inputs**-0.5
        made = quantised(form, outputs, inputs, seed)
        return QuantisedMatrix(form, made.codes, made.scales * inputs**-0.5, made.minimums * inputs**-0.5)

    return [(matrix(inner, size, 3 * i), matrix(inner, size, 3 * i + 1)) for i in range(experts)], [
        matrix(size, inner, 3 * i + 2) for i in range(experts)
    ]


@pytest.mark.parametrize("form", [4, 8, 16])
@pytest.mark.parametrize("rule", [ExpertRule(2, True, "silu"), ExpertRule(3, False, "gelu_tanh")])
def test_experts_against_the_twin(operations: CpuOperations, form: int, rule: ExpertRule) -> None:
    gate_up, down = expert_matrices(form, 5, 64, 96)
    x, scores = random(45, 64).bfloat16(), random(45, 5, seed=9).bfloat16()
    found = operations.experts(x, scores, operations.pack_experts(gate_up, down), rule, batch(20, 25))
    twin = ReferenceOperations(CPU)
    wanted = twin.experts(x.float(), scores.float(), twin.pack_experts(gate_up, down), rule, batch(20, 25))
    assert deviation(found, wanted) < 0.04


@pytest.mark.parametrize("form", [4, 16])
def test_an_expert_is_asked_for_when_the_one_before_is_packed(operations: CpuOperations, form: int) -> None:
    gate_up, down = expert_matrices(form, 5, 64, 96)
    at_once = operations.pack_experts(list(gate_up), list(down))
    alive = weakref.WeakSet[torch.Tensor]()

    def asked(matrices: list[Any]) -> Iterator[Any]:
        while matrices:
            assert len(alive) <= 2, "the pair that is being packed"
            pair = matrices.pop(0)
            alive.update(each.codes if isinstance(each, QuantisedMatrix) else each for each in _matrices(pair))
            yield pair
            del pair

    one_by_one = operations.pack_experts(asked(gate_up), asked(down))
    x, scores, rule = random(8, 64).bfloat16(), random(8, 5, seed=9).bfloat16(), ExpertRule(2, True, "silu")
    found = [operations.experts(x, scores, packed, rule, batch(4, 4)) for packed in (at_once, one_by_one)]
    assert torch.equal(*found)


def _matrices(pair: Matrix | tuple[Matrix, Matrix]) -> tuple[Matrix, ...]:
    return pair if isinstance(pair, tuple) else (pair,)


@pytest.mark.parametrize("form", [4, 16])
def test_a_tokens_experts_do_not_depend_on_company(operations: CpuOperations, form: int) -> None:
    packed, rule = operations.pack_experts(*expert_matrices(form, 4, 64, 32)), ExpertRule(2, True, "silu")
    x, scores = random(50, 64).bfloat16(), random(50, 4, seed=9).bfloat16()
    together = operations.experts(x, scores, packed, rule, batch(30, 20))
    for i, role in ((0, (1, 0)), (17, (1, 0)), (29, (1, 0)), (30, (0, 1)), (49, (0, 1))):
        alone = operations.experts(x[i : i + 1], scores[i : i + 1], packed, rule, batch(*role))
        assert torch.equal(alone, together[i : i + 1])
    few = torch.cat([together[:9], together[30:37]])
    rows = torch.cat([torch.arange(9), torch.arange(30, 37)])
    assert torch.equal(operations.experts(x[rows], scores[rows], packed, rule, batch(9, 7)), few)


def test_equal_scores_choose_the_first_experts(operations: CpuOperations) -> None:
    gate_up, down = expert_matrices(16, 4, 32, 32)
    x, scores = random(3, 32).bfloat16(), torch.zeros(3, 4, dtype=torch.bfloat16)
    rule = ExpertRule(2, True, "silu")
    four = operations.experts(x, scores, operations.pack_experts(gate_up, down), rule, batch(3, 0))
    two = operations.experts(
        x, scores[:, :2].contiguous(), operations.pack_experts(gate_up[:2], down[:2]), rule, batch(3, 0)
    )
    assert torch.equal(four, two)


def test_packed_codes_need_no_more_memory_than_five_or_nine_bits(operations: CpuOperations) -> None:
    for bits, bytes_a_weight in ((4, 5 / 8), (8, 9 / 8)):
        matrix = quantised(bits, 64, 128)
        memory = operations.pack([matrix]).data.panels.memory
        assert memory[0].nbytes == matrix.codes.numel() * bytes_a_weight
        assert sum(each.nbytes for each in memory[1:]) in (0, 2 * dense(matrix).numel())
