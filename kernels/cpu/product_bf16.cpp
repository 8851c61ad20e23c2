// Rows times weights in bfloat16: prompts' rows, and all rows where the weights have no codes.
#include "product.h"
#include "product_bf16_amx.h"
#include "product_bf16_pairs.h"

void multiply_bf16(const bf16* const weights[BLOCK_PANELS], int num_outputs, const Bf16Rows& rows, int first, int last,
                   const Output& out, int column) {
    multiply_row_tiles(weights, rows, first, last, [&](int row, Lanes left, Lanes right) {
        out.put(row, column, std::min(num_outputs, PANEL), left);
        if (num_outputs > PANEL) out.put(row, column + PANEL, num_outputs - PANEL, right);
    });
}
