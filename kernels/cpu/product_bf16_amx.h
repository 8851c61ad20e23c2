// Rows of bfloat16 times a block of two panels, on AMX tiles of 16 rows, 16 outputs and 32 inputs.
#pragma once
#include "product.h"

#ifdef __AMX_BF16__
#include "amx.h"

// ROW_TILES (1 or 2) tiles of rows times two panels -> sums [16 * ROW_TILES][32]. FullTiles must be set.
template <int ROW_TILES>
static void multiply_tiles(const bf16* const weights[BLOCK_PANELS], const bf16* rows, int num_inputs, float* sums) {
    const bf16 *left = weights[0], *right = weights[1];
    const int64_t next_rows = (int64_t)num_inputs * 16;
    asm volatile("" ::: "memory");  // _tile_loadd does not say that it reads memory
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int k = 0; k < num_inputs; k += 32, rows += 512, left += 512, right += 512) {
        _tile_loadd(4, rows, 64);
        _tile_loadd(6, left, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, right, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (ROW_TILES == 2) {
            _tile_loadd(5, rows + next_rows, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, BLOCK_OUTPUTS * sizeof(float));
    _tile_stored(1, sums + 16, BLOCK_OUTPUTS * sizeof(float));
    if (ROW_TILES == 2) {
        _tile_stored(2, sums + 16 * BLOCK_OUTPUTS, BLOCK_OUTPUTS * sizeof(float));
        _tile_stored(3, sums + 16 * BLOCK_OUTPUTS + 16, BLOCK_OUTPUTS * sizeof(float));
    }
}

static void multiply_row_tiles(const bf16* const weights[BLOCK_PANELS], const Bf16Rows& rows, int first, int last,
                               auto&& put) {
    alignas(64) float sums[2 * Bf16Rows::ROW_TILE * BLOCK_OUTPUTS];
    const FullTiles configured;
    const int num_inputs = rows.padded_inputs();
    for (int tile = first; tile < last; tile += 2) {
        const int row = tile * Bf16Rows::ROW_TILE;
        const bf16* from = rows.tiles + (int64_t)row * num_inputs;
        (last - tile == 1 ? multiply_tiles<1> : multiply_tiles<2>)(weights, from, num_inputs, sums);
        const int count = std::min(2, last - tile) * Bf16Rows::ROW_TILE;
        for (int m = 0; m < std::min(count, rows.num_rows - row); ++m)
            put(row + m, load(sums + m * BLOCK_OUTPUTS), load(sums + m * BLOCK_OUTPUTS + PANEL));
    }
}

#endif
