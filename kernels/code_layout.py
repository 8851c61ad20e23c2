"""How a file packs the codes of a quantised matrix: where they lie in a block, and how to get at them. Torch only.

`unpack` is the definition; kernels/cpu/code_layout.h does the same in registers.
"""

from dataclasses import dataclass

import torch

GROUP_SIZE = 32  # inputs that share a scale and a minimum; coarser formats repeat theirs


@dataclass(slots=True, frozen=True)
class CodeLayout:
    """A row is blocks of `block_bytes` with the codes of `block_groups` groups each, from byte `first` on.

    run: 0 where a code is a byte, `flipped` by exclusive or (128 makes int8 unsigned). Else two codes share a byte: of
    each `run` bytes, the low halves are the first `run` codes and the high halves the next.
    fifth: where the fifth bits of such codes begin, a bit a code, or -1. Bit g of byte i is code i's of group g; in
    blocks of one group, bit i of the four bytes is code i's.
    """

    block_bytes: int = GROUP_SIZE
    block_groups: int = 1
    first: int = 0
    run: int = 0
    flipped: int = 0
    fifth: int = -1

    def unpack(self, rows: torch.Tensor) -> torch.Tensor:
        """[N, bytes of a row] uint8 -> codes [N, K] uint8."""
        num_rows, size = len(rows), GROUP_SIZE * self.block_groups
        blocks = rows.reshape(num_rows, -1, self.block_bytes)
        if self.run == 0:
            return (blocks[..., self.first : self.first + size] ^ self.flipped).reshape(num_rows, -1)
        packed = blocks[..., self.first : self.first + size // 2].reshape(num_rows, -1, 1, self.run)
        codes = torch.cat([packed & 15, packed >> 4], dim=2).view(num_rows, -1)
        return codes if self.fifth < 0 else codes | self._fifth_bits(blocks).view(num_rows, -1) << 4

    def _fifth_bits(self, blocks: torch.Tensor) -> torch.Tensor:
        """[N, blocks, bytes] -> 0 or 1 of each code, [N, blocks, block_groups, GROUP_SIZE] or of as many elements."""
        eight = torch.arange(8, dtype=torch.uint8)
        if self.block_groups == 1:
            return blocks[..., self.fifth : self.fifth + GROUP_SIZE // 8, None] >> eight & 1
        return blocks[..., None, self.fifth : self.fifth + GROUP_SIZE] >> eight[: self.block_groups, None] & 1


BYTES = CodeLayout()
