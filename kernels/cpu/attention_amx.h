// The products of attention_products.h on AMX tiles, for TILE queries. Pages hold keys and values as tiles want them.
#pragma once
#include "attention.h"

#ifdef __AMX_BF16__

// While one lives, this thread's tiles 0 to 3 sum for 16 queries and 16 outputs; 4 takes 32 inputs of the queries and 5
// of the outputs, 6 and 7 take 16.
class AttentionTiles {
  public:
    AttentionTiles() {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 32, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 8};
        } config;
        asm volatile("" ::"r"(&config) : "memory");  // GCC 12 takes the stores above for dead
        _tile_loadconfig(&config);
    }
    ~AttentionTiles() { _tile_release(); }
};

// The first n of tiles 0 to 3 += tile `a` times what lies at inputs(0) to inputs(n - 1).
#define ADD_TILE_PRODUCT(sum, a, b, inputs, stride) \
    {                                               \
        _tile_loadd(b, inputs, stride);             \
        _tile_dpbf16ps(sum, a, b);                  \
    }
#define ADD_TILE_PRODUCTS(n, a, b, inputs, stride)                      \
    {                                                                   \
        ADD_TILE_PRODUCT(0, a, b, inputs(0), stride)                    \
        if ((n) > 1) ADD_TILE_PRODUCT(1, a, b, inputs(1), stride)       \
        if ((n) > 2) ADD_TILE_PRODUCT(2, a, b, inputs(2), stride)       \
        if ((n) > 3) ADD_TILE_PRODUCT(3, a, b, inputs(3), stride)       \
    }

// The products begin with this: _tile_loadd does not say that it reads memory.
#define FINISH_STORES() asm volatile("" ::: "memory")

static inline void zero_tiles() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static inline void load_tiles(int n, const float* from, int stride) {
    _tile_loadd(0, from, stride);
    if (n > 1) _tile_loadd(1, from + 16, stride);
    if (n > 2) _tile_loadd(2, from + 32, stride);
    if (n > 3) _tile_loadd(3, from + 48, stride);
}

static inline void store_tiles(int n, float* out, int stride) {
    _tile_stored(0, out, stride);
    if (n > 1) _tile_stored(1, out + 16, stride);
    if (n > 2) _tile_stored(2, out + 32, stride);
    if (n > 3) _tile_stored(3, out + 48, stride);
}

// As `score`, for TILE queries.
static inline void score_with_tiles(const bf16* queries, int64_t stride, const bf16* const* keys, int num_blocks,
                                    int head_dim, float* scores) {
    FINISH_STORES();
    for (int b = 0; b < num_blocks; b += 4) {
        const int n = std::min(4, num_blocks - b);
        zero_tiles();
        int d = 0;
        const auto keys_at = [&](int i) { return keys[b + i] + d * BLOCK; };
        for (; d + 32 <= head_dim; d += 32) {
            _tile_loadd(4, queries + d, (int)(stride * sizeof(bf16)));
            ADD_TILE_PRODUCTS(n, 4, 5, keys_at, 2 * BLOCK * (int)sizeof(bf16))
        }
        if (d < head_dim) {
            _tile_loadd(6, queries + d, (int)(stride * sizeof(bf16)));
            ADD_TILE_PRODUCTS(n, 6, 7, keys_at, 2 * BLOCK * (int)sizeof(bf16))
        }
        store_tiles(n, scores + b * BLOCK, RANGE * (int)sizeof(float));
    }
}

// As `add_values`, for TILE queries.
static inline void add_values_with_tiles(const bf16* weights, const bf16* const* values, int num_blocks, int head_dim,
                                         float* out) {
    const int stride = head_dim * sizeof(float);  // a pair of values' row has as many bytes
    FINISH_STORES();
    for (int column = 0; column < head_dim; column += 64) {
        const int n = std::min(4, (head_dim - column) / 16);
        load_tiles(n, out + column, stride);
        for (int b = 0; b < num_blocks; ++b) {
            const auto values_at = [&](int i) { return values[b] + 2 * (column + 16 * i); };
            _tile_loadd(6, weights + b * BLOCK, RANGE * (int)sizeof(bf16));
            ADD_TILE_PRODUCTS(n, 6, 7, values_at, stride)
        }
        store_tiles(n, out + column, stride);
    }
}

#endif
