// Products y = x W^T + bias: what their files share.
//
// W lies in panels of 16 outputs (PANEL), in one of three forms:
// - 4 or 8 bits: per group of 32 inputs, the codes as lines of [16 outputs][4 inputs] bytes, then 16 scales and 16
//   minimums in float16. Eight lines a group; of 4-bit codes, two lines share one, the earlier in the low half-bytes.
// - 16 bits: bfloat16, per 32 inputs 16 lines of [16 outputs][2 inputs], in blocks of two panels; padded with 0.
//
// A generated token's row meets the codes as int8 (product_quantised.cpp), a prompt's row meets the same weights as
// bfloat16 (product_bf16.cpp). Every result is one accumulator that takes the inputs in order, so a row's bits
// don't depend on the rows beside it.
#pragma once
#include "code_layout.h"
#include "simd.h"
#include "worker.h"

static constexpr int PANEL = 16;
static constexpr int BLOCK_PANELS = 2;  // that prompts' rows meet together
static constexpr int BLOCK_OUTPUTS = BLOCK_PANELS * PANEL;

// Rows of one matrix W, all in one form.
struct Part {
    const uint8_t* panels;
    const bf16* copy;  // of codes: the same weights as 16-bit panels, or null
    int num_outputs;
    int bits;
    float unit;  // of scales and minimums, a power of 2

    int num_panels() const { return (num_outputs + PANEL - 1) / PANEL; }
    int num_blocks() const { return (num_outputs + BLOCK_OUTPUTS - 1) / BLOCK_OUTPUTS; }
    int64_t panel_bytes(int num_inputs) const {
        const int64_t groups = (num_inputs + GROUP - 1) / GROUP;
        return bits == 16 ? groups * GROUP * PANEL * 2 : groups * group_bytes();
    }
    int group_bytes() const { return GROUP * PANEL * bits / 8 + 2 * PANEL * (int)sizeof(uint16_t); }
};

// Where results go: row m, column n to y[m * stride + n].
struct Output {
    void* y;
    int64_t stride;
    bool is_float;  // else bfloat16
    const float* bias;  // or null; 15 more than columns may be read

    // `count` of the lanes, from this column on.
    void put(int64_t row, int column, int count, Lanes sums) const {
        if (bias) sums = sums + load(bias + column);
        if (is_float)
            put_to((float*)y + row * stride + column, count, sums);
        else
            put_to((bf16*)y + row * stride + column, count, sums);
    }

    Output from_row(int64_t row) const {
        char* first = (char*)y + row * stride * (is_float ? sizeof(float) : sizeof(bf16));
        return {first, stride, is_float, bias};
    }

  private:
    template <typename T>
    static void put_to(T* to, int count, Lanes sums) {
        if (count >= LANES) return store(to, sums);
        T lanes[LANES];
        store(lanes, sums);
        std::copy(lanes, lanes + count, to);
    }
};

// A tile of rows quantised to int8 in groups, x = scale * code: codes [group][rows][GROUP], scales, sums [group][rows].
struct QuantisedTile {
    const int8_t* codes;
    const float* scales;
    const float* sums;  // scale * the sum of a group's codes
};

// All of them, tile after tile.
struct QuantisedRows {
    // Of a tile. From VECTOR_ROWS on, vectors make way for AMX, whose tiles want multiples of 4.
#ifdef __AMX_INT8__
    static constexpr int MOST_ROWS = 16, VECTOR_ROWS = 7, MULTIPLE = 4;
#elif defined(__AVX512VNNI__)
    static constexpr int MOST_ROWS = 12, VECTOR_ROWS = 12, MULTIPLE = 1;
#else
    static constexpr int MOST_ROWS = 4, VECTOR_ROWS = 4, MULTIPLE = 1;
#endif
    int num_rows, num_groups, tile_rows;
    int8_t* codes;
    float* scales;
    float* sums;

    QuantisedRows(int num_rows, int num_inputs, int8_t* codes, float* scales, float* sums);
    int num_tiles() const { return (num_rows + tile_rows - 1) / tile_rows; }
    QuantisedTile tile(int tile) const {
        const int64_t group = (int64_t)tile * num_groups * tile_rows;
        return {codes + group * GROUP, scales + group, sums + group};
    }
    // Fills a tile: its row m is x[(index ? index[row] : row) * stride], row = tile * tile_rows + m.
    void pack_tile(int tile, const bf16* x, int64_t stride, const int32_t* index) const;
};

// Rows in bfloat16, in tiles of 16 (ROW_TILE), padded with 0: with AMX [tile][input / 32][16][32], else [row][input].
struct Bf16Rows {
    static constexpr int ROW_TILE = 16;
    int num_rows, num_inputs;
    bf16* tiles;

    int padded_inputs() const { return (num_inputs + GROUP - 1) / GROUP * GROUP; }
    int num_tiles() const { return (num_rows + ROW_TILE - 1) / ROW_TILE; }
    void pack_tile(int tile, const bf16* x, int64_t stride, const int32_t* index) const;
};

// Panels [first, last) of a part with codes times all rows, to y's columns from `column` on. `room`: this thread's own,
// panel_room(number of inputs) bytes.
void multiply_quantised(const Part& part, int first, int last, const QuantisedRows& rows, const Output& out, int column,
                        uint8_t* room);

// A block of num_outputs outputs, its two panels in bfloat16, times the row tiles [first, last), to y's columns from
// `column` on.
void multiply_bf16(const bf16* const weights[BLOCK_PANELS], int num_outputs, const Bf16Rows& rows, int first, int last,
                   const Output& out, int column);

// A panel of codes -> bfloat16, as a 16-bit panel has it.
void dequantise_panel(const Part& part, int panel, int num_inputs, bf16* weights);

static inline int64_t panel_room(int num_inputs) { return (int64_t)num_inputs * PANEL * sizeof(bf16); }
