"""4- and 8-bit linear layers as GPTQ and AWQ checkpoints pack them into int32 -> quantised matrices.

Weight = scale * (code - zero), with one scale and zero for each group of inputs. Little-endian. Knows no files.
Layouts: AutoGPTQ's qlinear_cuda.py (Frantar et al. 2022, arXiv:2210.17323); AutoAWQ's gemm.py (Lin et al. 2023,
arXiv:2306.00978).
"""

import torch

from kernels.matrix import GROUP_SIZE, Matrix, QuantisedMatrix

_AWQ_NIBBLE = (0, 4, 1, 5, 2, 6, 3, 7)  # output j of eight lies in this nibble: made for the order of a GPU's lanes


def gptq_matrix(
    qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor, g_idx: torch.Tensor, bits: int, zero_offset: int
) -> Matrix:
    """qweight [K * bits / 32, N] int32, qzeros [G, N * bits / 32] int32, scales [G, N], g_idx [K] -> [N, K].

    zero_offset: 1 where zeros are stored minus 1 (format "gptq"), 0 in "gptq_v2". Groups that were formed by activation
    order (desc_act) lie scattered over the inputs: such a matrix comes as float32, all others quantised.
    """
    codes = _unpack(qweight.t().contiguous(), bits)  # [N, K]
    zeros = _unpack(qzeros, bits).t().short() + zero_offset  # [N, G]
    scales = scales.t()  # [N, G]
    in_order = torch.arange(len(g_idx)) // (len(g_idx) // scales.shape[1])
    if torch.equal(g_idx.long(), in_order):
        return _grouped(codes, zeros, scales, bits)
    group = g_idx.long()
    return (codes.float() - zeros.float()[:, group]) * scales.float()[:, group]


def awq_matrix(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor) -> Matrix:
    """qweight [K, N / 8] int32, qzeros [G, N / 8] int32, scales [G, N] -> [N, K]; the "gemm" version's order."""
    codes, zeros = (
        _unpack(packed, 4).view(len(packed), -1, 8)[..., list(_AWQ_NIBBLE)].view(len(packed), -1).t()
        for packed in (qweight, qzeros)
    )
    return _grouped(codes.contiguous(), zeros, scales.t(), 4)


def _unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """[n, m] int32 -> [n, m * 32 / bits] uint8, the lowest bits first."""
    taken = packed.contiguous().view(torch.uint8)
    if bits == 8:
        return taken
    pairs = taken.short()  # each byte becomes two: its halves
    return ((pairs & 15) | (pairs << 4 & 0x0F00)).view(torch.uint8)


def _grouped(codes: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor, bits: int) -> QuantisedMatrix:
    """codes [N, K], zeros and scales [N, G]; the format's groups are whole ones of ours."""
    repeats = codes.shape[1] // GROUP_SIZE // scales.shape[1]
    exact = -zeros.float() * scales.float()
    minimums = exact.to(scales.dtype)
    if not torch.equal(minimums.float(), exact):
        minimums = exact
    return QuantisedMatrix(
        bits,
        codes,
        scales.repeat_interleave(repeats, dim=1).contiguous(),
        minimums.repeat_interleave(repeats, dim=1).contiguous(),
    )
