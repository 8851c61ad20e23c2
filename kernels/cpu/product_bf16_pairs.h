// Rows of bfloat16 times a block of two panels, in vectors: two inputs of 16 outputs in one instruction (AVX-512 BF16),
// or the like of it in AVX2.
#pragma once
#include "pairs.h"
#include "product.h"

#ifndef __AMX_BF16__
#ifdef __AVX512BF16__
static constexpr int VECTOR_ROWS = 12;  // 24 sums, 2 weights, 1 input: 27 of 32 registers
#else
static constexpr int VECTOR_ROWS = 2;  // 8 halves of sums, 4 of weights, 2 of inputs: 14 of 16
#endif

template <int ROWS>
static void multiply_pairs(const bf16* const weights[BLOCK_PANELS], const bf16* rows, int num_inputs,
                           Lanes (*out)[BLOCK_PANELS]) {
    const bf16 *left = weights[0], *right = weights[1];
    Lanes sums[ROWS][BLOCK_PANELS];
    for (int m = 0; m < ROWS; ++m) sums[m][0] = sums[m][1] = broadcast(0.0f);
    for (int k = 0; k < num_inputs; k += 2, left += 2 * PANEL, right += 2 * PANEL) {
        const Pairs a = load_pairs(left), b = load_pairs(right);
        for (int m = 0; m < ROWS; ++m) {
            const Pairs inputs = broadcast_pair(rows + (int64_t)m * num_inputs + k);
            sums[m][0] = add_dot(sums[m][0], a, inputs);
            sums[m][1] = add_dot(sums[m][1], b, inputs);
        }
    }
    for (int m = 0; m < ROWS; ++m) out[m][0] = sums[m][0], out[m][1] = sums[m][1];
}

template <int ROWS = VECTOR_ROWS>
static void multiply_few(int num_rows, const bf16* const weights[BLOCK_PANELS], const bf16* rows, int num_inputs,
                         Lanes (*out)[BLOCK_PANELS]) {
    if (num_rows == ROWS) return multiply_pairs<ROWS>(weights, rows, num_inputs, out);
    if constexpr (ROWS > 1) multiply_few<ROWS - 1>(num_rows, weights, rows, num_inputs, out);
}

static void multiply_row_tiles(const bf16* const weights[BLOCK_PANELS], const Bf16Rows& rows, int first, int last,
                               auto&& put) {
    Lanes sums[VECTOR_ROWS][BLOCK_PANELS];
    const int end = std::min(rows.num_rows, last * Bf16Rows::ROW_TILE);
    for (int row = first * Bf16Rows::ROW_TILE; row < end; row += VECTOR_ROWS) {
        const int count = std::min(VECTOR_ROWS, end - row);
        multiply_few(count, weights, rows.tiles + (int64_t)row * rows.padded_inputs(), rows.padded_inputs(), sums);
        for (int m = 0; m < count; ++m) put(row + m, sums[m][0], sums[m][1]);
    }
}

#endif
