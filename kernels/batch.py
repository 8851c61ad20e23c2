"""Where each row of a step belongs: position, cache slot, block table. Built on the host once, for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

BLOCK_SIZE = 16  # tokens a cache block holds
TILE = 8  # query rows the torch attention runs together: a token's place in its tile is its position modulo TILE
_BUCKET = 4 * BLOCK_SIZE  # key counts are rounded up to this, so that few shapes occur


@dataclass(slots=True, frozen=True)
class SequenceRows:
    """Rows of one sequence: tokens [start, start + num_tokens), whose KV lies in `block_ids`.

    The tokens from num_prompt on were generated.
    """

    start: int
    num_tokens: int
    block_ids: Sequence[int]
    num_prompt: int


@dataclass(slots=True, frozen=True)
class TileGroup:
    """Tiles of query rows that see an equal number of keys, rounded up.

    rows [n, TILE] int64: the batch row of each query, `num_rows` where the tile has none (a row of padding).
    last_key [n, TILE] int64: the last position a query sees. blocks [n, num_keys / BLOCK_SIZE] int64: block ids.
    unwritten [n, w] bool: which of the last w keys lie beyond the sequence, in slots that hold anything.
    """

    rows: torch.Tensor
    last_key: torch.Tensor
    blocks: torch.Tensor
    unwritten: torch.Tensor

    def part(self, start: int, end: int) -> "TileGroup":
        return TileGroup(
            self.rows[start:end], self.last_key[start:end], self.blocks[start:end], self.unwritten[start:end]
        )


class TokenBatch:
    """positions, sequences int32 [T]; slots int64 [T]; block_tables int32 [S, B], padded with 0; all on `device`.

    The rows of generated tokens come first, `num_generated` of them, then those of prompts; each in the order of the
    sequences, and a sequence's in the order of its tokens. `order` [T] int64 (numpy) says which of the planned tokens,
    counted through the sequences one after another, a row is; `row_of` [T] is its inverse.
    """

    def __init__(self, sequences: Sequence[SequenceRows], device: torch.device) -> None:
        self._sequences = sequences
        self._device = device
        starts = np.array([rows.start for rows in sequences])
        counts = np.array([rows.num_tokens for rows in sequences])
        num_prompt = np.array([rows.num_prompt for rows in sequences])
        self.num_rows = int(counts.sum())
        tables = np.zeros((len(sequences), max(len(rows.block_ids) for rows in sequences)), np.int32)
        for table, rows in zip(tables, sequences, strict=True):
            table[: len(rows.block_ids)] = rows.block_ids
        owner = np.repeat(np.arange(len(sequences)), counts)
        self.first_token = np.cumsum(counts) - counts  # [S]: where each sequence's tokens begin among the planned ones
        positions = starts[owner] + np.arange(self.num_rows) - self.first_token[owner]
        is_prompt = positions < num_prompt[owner]
        self.num_generated = self.num_rows - int(is_prompt.sum())
        self.order = np.argsort(is_prompt, kind="stable")
        self.row_of = np.empty_like(self.order)
        self.row_of[self.order] = np.arange(self.num_rows)
        owner, positions = owner[self.order], positions[self.order]
        slots = tables[owner, positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
        self.largest_block = int(tables.max())
        self.largest_position = int(positions.max())
        self.positions = self._tensor(positions.astype(np.int32))
        self.sequences = self._tensor(owner.astype(np.int32))
        self.slots = self._tensor(slots)
        self.block_tables = self._tensor(tables)
        self._tiles: list[TileGroup] | None = None

    @property
    def tiles(self) -> list[TileGroup]:
        """Every row in exactly one tile; what a tile computes depends on its positions alone, not on the batch."""
        if self._tiles is None:
            self._tiles = self._cut_tiles()
        return self._tiles

    def _cut_tiles(self) -> list[TileGroup]:
        groups: dict[int, list[tuple[int, int]]] = {}  # number of keys -> (sequence, position of the tile's start)
        for index, rows in enumerate(self._sequences):
            end = rows.start + rows.num_tokens
            for tile in range(rows.start // TILE * TILE, end, TILE):
                num_keys = -(-(tile + TILE) // _BUCKET) * _BUCKET
                groups.setdefault(num_keys, []).append((index, tile))
        return [self._group(num_keys, members) for num_keys, members in sorted(groups.items())]

    def _group(self, num_keys: int, members: list[tuple[int, int]]) -> TileGroup:
        index, tile = (np.array(column)[:, None] for column in zip(*members, strict=True))
        position = tile + np.arange(TILE)[None]
        first = np.array([self._sequences[i].start for i in index[:, 0]])[:, None]
        end = first + np.array([self._sequences[i].num_tokens for i in index[:, 0]])[:, None]
        used = (position >= first) & (position < end)
        planned = np.where(used, self.first_token[index] + position - first, 0)
        blocks = np.zeros((len(members), num_keys // BLOCK_SIZE), np.int64)
        for line, i in zip(blocks, index[:, 0], strict=True):
            ids = self._sequences[i].block_ids[: len(line)]
            line[: len(ids)] = ids
        return TileGroup(
            self._tensor(np.where(used, self.row_of[planned], self.num_rows)),
            self._tensor(position),
            self._tensor(blocks),
            self._tensor(np.arange(num_keys - _BUCKET, num_keys) >= end),  # no tile begins before the last bucket
        )

    def _tensor(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)
