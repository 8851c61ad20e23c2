// The two products of attention for some queries of one KV head: with keys, and of weights with values. Each result is
// summed in one accumulator in the order of its inputs, so that no query's bits depend on the others.
#pragma once
#include <type_traits>

#include "attention.h"

#ifdef __AVX512BF16__
static constexpr int AT_ONCE = 4;  // queries, blocks, and 16 columns: 16 accumulators, 4 keys, 1 query of 32 registers
#else
static constexpr int AT_ONCE = 2;
#endif

template <int N>
using Number = std::integral_constant<int, N>;

// f(first, size) for groups of AT_ONCE, then for those that are left; the size is a Number.
template <class F>
static inline void in_groups(int count, F f) {
    int first = 0;
    for (; first + AT_ONCE <= count; first += AT_ONCE) f(first, Number<AT_ONCE>{});
    if (count - first == 1) f(first, Number<1>{});
    if (count - first == 2) f(first, Number<2>{});
    if (count - first == 3) f(first, Number<3>{});
}

// The same with groups of one for what is left: for inner loops, lest each be compiled in every size.
template <class F>
static inline void in_groups_or_ones(int count, F f) {
    int first = 0;
    for (; first + AT_ONCE <= count; first += AT_ONCE) f(first, Number<AT_ONCE>{});
    for (; first < count; ++first) f(first, Number<1>{});
}

template <int Q, int B, class Element>
static void score_group(const bf16* queries, int64_t stride, const Element* const* keys, int head_dim, float* scores) {
    Lanes sums[Q][B];
    for (auto& row : sums)
        for (Lanes& sum : row) sum = broadcast(0.0f);
    for (int d = 0; d < head_dim; d += 2) {
        Pairs key[B];
        for (int b = 0; b < B; ++b) key[b] = load_pairs(keys[b] + d * BLOCK);
        for (int q = 0; q < Q; ++q) {
            const Pairs query = broadcast_pair(queries + q * stride + d);
            for (int b = 0; b < B; ++b) sums[q][b] = add_dot(sums[q][b], key[b], query);
        }
    }
    for (int q = 0; q < Q; ++q)
        for (int b = 0; b < B; ++b) store(scores + q * RANGE + b * BLOCK, sums[q][b]);
}

// queries [count] of head_dim, `stride` apart; keys [num_blocks] -> scores [TILE][RANGE].
template <class Element>
static inline void score(const bf16* queries, int64_t stride, int count, const Element* const* keys, int num_blocks,
                         int head_dim, float* scores) {
    in_groups(count, [&](int q, auto num_queries) {
        in_groups_or_ones(num_blocks, [&](int b, auto blocks) {
            score_group<num_queries(), blocks()>(queries + q * stride, stride, keys + b, head_dim,
                                                 scores + q * RANGE + b * BLOCK);
        });
    });
}

template <int Q, int C, class Element>
static void add_group(const bf16* weights, const Element* const* values, int column, int num_blocks, int head_dim,
                      float* out) {
    Lanes sums[Q][C];
    for (int q = 0; q < Q; ++q)
        for (int c = 0; c < C; ++c) sums[q][c] = load(out + q * head_dim + column + c * LANES);
    for (int b = 0; b < num_blocks; ++b)
        for (int j = 0; j < BLOCK; j += 2) {
            Pairs value[C];
            for (int c = 0; c < C; ++c) value[c] = load_pairs(values[b] + j * head_dim + 2 * (column + c * LANES));
            for (int q = 0; q < Q; ++q) {
                const Pairs weight = broadcast_pair(weights + q * RANGE + b * BLOCK + j);
                for (int c = 0; c < C; ++c) sums[q][c] = add_dot(sums[q][c], value[c], weight);
            }
        }
    for (int q = 0; q < Q; ++q)
        for (int c = 0; c < C; ++c) store(out + q * head_dim + column + c * LANES, sums[q][c]);
}

// out [TILE][head_dim] += weights [TILE][RANGE] of `count` queries times the values of num_blocks blocks.
template <class Element>
static inline void add_values(const bf16* weights, int count, const Element* const* values, int num_blocks,
                              int head_dim, float* out) {
    in_groups(count, [&](int q, auto num_queries) {
        in_groups_or_ones(head_dim / LANES, [&](int c, auto columns) {
            add_group<num_queries(), columns()>(weights + q * RANGE, values, c * LANES, num_blocks, head_dim,
                                                out + q * head_dim);
        });
    });
}
