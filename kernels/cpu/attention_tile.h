// Both products for a tile of a prompt's queries, in the fastest way that the instruction set has.
#pragma once
#include "attention_amx.h"
#include "attention_products.h"
#include "attention_softmax.h"

#ifdef __AMX_BF16__

static constexpr bool TILES_ARE_FULL = true;  // whatever the number of queries, TILE of them are read

static inline void score_tile(const Queries& queries, const KeyRange<bf16>& range, int head_dim, float* scores) {
    score_with_tiles(queries.rows, queries.stride, range.keys, range.num_blocks, head_dim, scores);
}
static inline void add_values_tile(const bf16* weights, int, const KeyRange<bf16>& range, int head_dim, float* out) {
    add_values_with_tiles(weights, range.values, range.num_blocks, head_dim, out);
}

#else

static constexpr bool TILES_ARE_FULL = false;

struct AttentionTiles {
    ~AttentionTiles() {}
};

static inline void score_tile(const Queries& queries, const KeyRange<bf16>& range, int head_dim, float* scores) {
    score(queries.rows, queries.stride, queries.count, range.keys, range.num_blocks, head_dim, scores);
}
static inline void add_values_tile(const bf16* weights, int count, const KeyRange<bf16>& range, int head_dim,
                                   float* out) {
    add_values(weights, count, range.values, range.num_blocks, head_dim, out);
}

#endif
