// A step's rows by their role, and what a block of outputs does with them. For a layer, or for one expert's rows.
#pragma once
#include "product.h"

// Outputs [number * BLOCK_OUTPUTS, ...) of a part, that go to y's columns from `column` on.
struct Block {
    const Part* part;
    int number;
    int column;
    int first_panel() const { return number * BLOCK_PANELS; }
    int num_outputs() const { return std::min(BLOCK_OUTPUTS, part->num_outputs - number * BLOCK_OUTPUTS); }
    int num_panels() const { return num_outputs() > PANEL ? 2 : 1; }
};

// The blocks of stacked parts, one after the other.
struct Blocks {
    const Part* parts;
    int num_parts;

    int count() const {
        int blocks = 0;
        for (int i = 0; i < num_parts; ++i) blocks += parts[i].num_blocks();
        return blocks;
    }
    Block operator[](int i) const {
        const Part* part = parts;
        int column = 0;
        for (; i >= part->num_blocks(); ++part) i -= part->num_blocks(), column += part->num_outputs;
        return {part, i, column + i * BLOCK_OUTPUTS};
    }
    bool any(bool codes) const {
        return std::any_of(parts, parts + num_parts, [&](const Part& part) { return (part.bits != 16) == codes; });
    }
};

// Room for rows in the products' order, of num_inputs inputs (K): so many bytes that any split into roles fits.
struct RowBuffers {
    int8_t* codes;  // [rows + 16, K]
    float* scales;  // [rows + 16, K / GROUP]
    float* sums;
    bf16* tiles;  // [rows + 32, K rounded up to GROUP]

    // The part that belongs to rows from `row` on, `groups` groups of rows having theirs before it.
    RowBuffers from(int64_t row, int groups, int num_inputs) const {
        const int64_t quantised = row + 16 * groups, k = num_inputs, padded = (k + GROUP - 1) / GROUP * GROUP;
        return {codes + quantised * k, scales + quantised * (k / GROUP), sums + quantised * (k / GROUP),
                tiles + (row + 32 * groups) * padded};
    }
};

struct RoleRows {
    QuantisedRows quantised;  // generated tokens', where a part has codes
    Bf16Rows generated;       // the same, where one has none
    Bf16Rows prompt;
    int num_generated;

    RoleRows(int num_generated, int num_prompt, int num_inputs, const Blocks& blocks, const RowBuffers& to)
        : quantised(blocks.any(true) ? num_generated : 0, num_inputs, to.codes, to.scales, to.sums),
          generated{blocks.any(false) ? num_generated : 0, num_inputs, to.tiles},
          prompt{num_prompt, num_inputs,
                 to.tiles + (int64_t)generated.num_tiles() * Bf16Rows::ROW_TILE * generated.padded_inputs()},
          num_generated(num_generated) {}

    int num_tiles() const { return quantised.num_tiles() + generated.num_tiles() + prompt.num_tiles(); }

    // One of num_tiles tiles, of the rows x, or of x's rows at `index`; generated tokens' are the first.
    void pack_tile(int tile, const bf16* x, int64_t stride, const int32_t* index = nullptr) const {
        if (tile < quantised.num_tiles()) return quantised.pack_tile(tile, x, stride, index);
        tile -= quantised.num_tiles();
        if (tile < generated.num_tiles()) return generated.pack_tile(tile, x, stride, index);
        tile -= generated.num_tiles();
        if (index) return prompt.pack_tile(tile, x, stride, index + num_generated);
        prompt.pack_tile(tile, x + num_generated * stride, stride, nullptr);
    }
};

// A block times the row tiles [first, last), in bfloat16. Codes without a copy become bfloat16 on the way.
static inline void multiply_block(const Block& block, const Bf16Rows& rows, int first, int last, const Output& out,
                                  Worker& worker) {
    const Part& part = *block.part;
    const int64_t panel_size = (int64_t)rows.padded_inputs() * PANEL;
    const bf16* weights = (part.bits == 16 ? (const bf16*)part.panels : part.copy) + block.first_panel() * panel_size;
    if (part.bits != 16 && !part.copy) {
        bf16* room = (bf16*)worker.scratch(block.num_panels() * panel_size * sizeof(bf16));
        for (int i = 0; i < block.num_panels(); ++i)
            dequantise_panel(part, block.first_panel() + i, rows.num_inputs, room + i * panel_size);
        weights = room;
    }
    const bf16* const panels[] = {weights, weights + (block.num_panels() - 1) * panel_size};
    multiply_bf16(panels, block.num_outputs(), rows, first, last, out, block.column);
}

// A block times all rows, each by its role.
static inline void multiply_block(const Block& block, const RoleRows& rows, const Output& out, Worker& worker) {
    const Part& part = *block.part;
    if (part.bits == 16) {
        multiply_block(block, rows.generated, 0, rows.generated.num_tiles(), out, worker);
    } else if (rows.num_generated) {
        uint8_t* room = (uint8_t*)worker.scratch(panel_room(rows.prompt.num_inputs));
        const int first = block.first_panel();
        multiply_quantised(part, first, first + block.num_panels(), rows.quantised, out, block.column, room);
    }
    if (rows.prompt.num_rows)
        multiply_block(block, rows.prompt, 0, rows.prompt.num_tiles(), out.from_row(rows.num_generated), worker);
}
