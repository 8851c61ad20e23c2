// Generated tokens' rows times codes: per group of 32 inputs an exact sum of integers, `dot`, then in float32
//     result += (dot * row's scale) * weights' scale;  result += weights' minimum * row's sum
// whatever the instruction set and the number of rows. llama.cpp computes in kind (ggml's Q8_1 activations).
#include "product.h"
#include "product_quantised_avx2.h"
#include "product_quantised_vnni.h"

#include "product_quantised_amx.h"  // needs PREFETCH of the VNNI file

template <int BITS, int ROWS = QuantisedRows::VECTOR_ROWS>
static void multiply_rows(int num_rows, const uint8_t* panel, QuantisedTile rows, int num_groups, Lanes* out) {
    if (num_rows == ROWS) return multiply_panel<BITS, ROWS>(panel, rows, num_groups, out);
    if constexpr (ROWS > 1) multiply_rows<BITS, ROWS - 1>(num_rows, panel, rows, num_groups, out);
}

// multiply(tile, results) for each tile of rows; the results to y's columns from `column` on.
static void each_tile(const Part& part, int panel, const QuantisedRows& rows, const Output& out, int column,
                      auto multiply) {
    const int num_columns = std::min(PANEL, part.num_outputs - panel * PANEL);
    Lanes results[QuantisedRows::MOST_ROWS];
    for (int tile = 0; tile < rows.num_tiles(); ++tile) {
        multiply(rows.tile(tile), results);
        const int first = tile * rows.tile_rows, count = std::min(rows.tile_rows, rows.num_rows - first);
        for (int m = 0; m < count; ++m) out.put(first + m, column, num_columns, results[m] * broadcast(part.unit));
    }
}

void multiply_quantised(const Part& part, int first, int last, const QuantisedRows& rows, const Output& out, int column,
                        [[maybe_unused]] uint8_t* room) {
    const int64_t panel_bytes = part.panel_bytes(rows.num_groups * GROUP);
#ifdef __AMX_INT8__
    if (rows.tile_rows > QuantisedRows::VECTOR_ROWS) {
        const GroupTiles configured(rows.tile_rows);
        const auto multiply = rows.tile_rows == 8    ? multiply_tile<8>
                              : rows.tile_rows == 12 ? multiply_tile<12>
                                                     : multiply_tile<16>;
        for (int panel = first; panel < last; ++panel, column += PANEL) {
            const UnpackedPanel weights(part.panels + panel * panel_bytes, part.bits, rows.num_groups, room);
            each_tile(part, panel, rows, out, column, [&](QuantisedTile tile, Lanes* results) {
                multiply(weights, tile, rows.num_groups, results);
            });
        }
        return;
    }
#endif
    for (int panel = first; panel < last; ++panel, column += PANEL)
        each_tile(part, panel, rows, out, column, [&](QuantisedTile tile, Lanes* results) {
            const uint8_t* weights = part.panels + panel * panel_bytes;
            const auto multiply = part.bits == 4 ? multiply_rows<4> : multiply_rows<8>;
            multiply(rows.tile_rows, weights, tile, rows.num_groups, results);
        });
}
