// The two products of attention for some queries of one KV head: with keys, and of weights with values. Each result is summed in
// one accumulator in the order of its inputs, so that no query's bits depend on the others.
#pragma once
#include "attention.h"
#include "pairs.h"

#if defined(__AVX512BF16__)
static constexpr int QUERIES_AT_ONCE = 4, BLOCKS_AT_ONCE = 4;  // 16 accumulators, 4 keys, 1 query of 32 registers
#else
static constexpr int QUERIES_AT_ONCE = 2, BLOCKS_AT_ONCE = 2;
#endif

template <int Q, int B, class Element>
static void scores_of(const bf16* queries, int64_t stride, const Element* const* keys, int head_dim, float* scores) {
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

template <int Q, class Element>
static void scores_of_range(const bf16* queries, int64_t stride, const Element* const* keys, int num_blocks, int head_dim,
                            float* scores) {
    int b = 0;
    for (; b + BLOCKS_AT_ONCE <= num_blocks; b += BLOCKS_AT_ONCE)
        scores_of<Q, BLOCKS_AT_ONCE>(queries, stride, keys + b, head_dim, scores + b * BLOCK);
    for (; b < num_blocks; ++b) scores_of<Q, 1>(queries, stride, keys + b, head_dim, scores + b * BLOCK);
}

// queries [count] of head_dim, `stride` apart; keys [num_blocks] -> scores [TILE][RANGE].
template <class Element>
static inline void score(const bf16* queries, int64_t stride, int count, const Element* const* keys, int num_blocks,
                         int head_dim, float* scores) {
    int q = 0;
    for (; q + QUERIES_AT_ONCE <= count; q += QUERIES_AT_ONCE)
        scores_of_range<QUERIES_AT_ONCE, Element>(queries + q * stride, stride, keys, num_blocks, head_dim, scores + q * RANGE);
    const auto rest = count - q == 3 ? scores_of_range<3, Element> : count - q == 2 ? scores_of_range<2, Element> : scores_of_range<1, Element>;
    if (q < count) rest(queries + q * stride, stride, keys, num_blocks, head_dim, scores + q * RANGE);
}

template <int Q, int C, class Element>
static void add_weighted(const bf16* weights, const Element* const* values, int num_blocks, int head_dim, int column,
                         float* out) {
    Lanes sums[Q][C];
    for (int q = 0; q < Q; ++q)
        for (int c = 0; c < C; ++c) sums[q][c] = load(out + q * head_dim + column + c * 16);
    for (int b = 0; b < num_blocks; ++b)
        for (int j = 0; j < BLOCK; j += 2) {
            Pairs value[C];
            for (int c = 0; c < C; ++c) value[c] = load_pairs(values[b] + j * head_dim + 2 * (column + c * 16));
            for (int q = 0; q < Q; ++q) {
                const Pairs weight = broadcast_pair(weights + q * RANGE + b * BLOCK + j);
                for (int c = 0; c < C; ++c) sums[q][c] = add_dot(sums[q][c], value[c], weight);
            }
        }
    for (int q = 0; q < Q; ++q)
        for (int c = 0; c < C; ++c) store(out + q * head_dim + column + c * 16, sums[q][c]);
}

template <int Q, class Element>
static void add_weighted_columns(const bf16* weights, const Element* const* values, int num_blocks, int head_dim, float* out) {
    constexpr int C = BLOCKS_AT_ONCE;
    int column = 0;
    for (; column + 16 * C <= head_dim; column += 16 * C)
        add_weighted<Q, C>(weights, values, num_blocks, head_dim, column, out);
    for (; column < head_dim; column += 16) add_weighted<Q, 1>(weights, values, num_blocks, head_dim, column, out);
}

// out [TILE][head_dim] += weights [TILE][RANGE] of `count` queries times the values of num_blocks blocks.
template <class Element>
static inline void add_values(const bf16* weights, int count, const Element* const* values, int num_blocks, int head_dim,
                              float* out) {
    int q = 0;
    for (; q + QUERIES_AT_ONCE <= count; q += QUERIES_AT_ONCE)
        add_weighted_columns<QUERIES_AT_ONCE, Element>(weights + q * RANGE, values, num_blocks, head_dim, out + q * head_dim);
    const auto rest = count - q == 3 ? add_weighted_columns<3, Element> : count - q == 2 ? add_weighted_columns<2, Element> : add_weighted_columns<1, Element>;
    if (q < count) rest(weights + q * RANGE, values, num_blocks, head_dim, out + q * head_dim);
}
