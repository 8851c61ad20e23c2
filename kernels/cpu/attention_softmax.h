// A softmax that is updated range by range of keys (Milakov and Gimelshein 2018, arXiv:1805.02867), for a tile of
// queries. Keys that a query doesn't see change none of its bits.
#pragma once
#include "key_range.h"
#include "pairs.h"

// Queries of one query head at following positions (step 1), or query heads at one position (step 0).
struct Queries {
    const bf16* rows;  // [count] of head_dim, `stride` apart
    int64_t stride;
    int count, position, step;
};

// Of `count` queries: the weighted sums of values [count][head_dim], the largest score so far and the sum of weights.
struct Softmax {
    float *values, *maximum, *sum;
    int count, head_dim;

    static size_t size(int count, int head_dim) { return (size_t)count * (head_dim + 2); }  // floats
    Softmax(float* memory, int count, int head_dim)
        : values(memory),
          maximum(memory + (size_t)count * head_dim),
          sum(maximum + count),
          count(count),
          head_dim(head_dim) {}
    void clear() {
        std::fill(values, maximum, 0.0f);
        std::fill(maximum, sum, -INFINITY);
        std::fill(sum, sum + count, 0.0f);
    }
};

static inline void scale_row(float* row, int size, float factor) {
    const Lanes factors = broadcast(factor);
    for (int i = 0; i < size; i += LANES) store(row + i, load(row + i) * factors);
}

// One query's scores over `range` become weights, relative to the largest score so far; its softmax follows.
// WHOLE: the query sees all keys of a range of RANGE_BLOCKS. The same arithmetic with less to do.
template <bool WHOLE>
static inline void weigh(const AttentionRule& rule, const KeyBlocks& range, int position, int head_dim, float* scores,
                         bf16* weights, float* values, float& largest, float& sum) {
    const Lanes never = broadcast(-INFINITY), scale = broadcast(rule.softcap ? rule.scale / rule.softcap : rule.scale);
    const int num_blocks = WHOLE ? RANGE_BLOCKS : range.num_blocks;
    const int first = rule.first_key(position) - range.first_key, last = position + 1 - range.first_key;
    const auto visible = [&](Lanes x, int b, Lanes other) {
        return WHOLE ? x : keep(x, first - b * BLOCK, last - b * BLOCK, other);
    };
    Lanes most = never;
    for (int b = 0; b < num_blocks; ++b) {
        Lanes score = load(scores + b * BLOCK) * scale;
        if (range.scaled) score = score * load(range.scales[b]);
        if (rule.softcap) score = broadcast(rule.softcap) * hyperbolic_tangent(score);
        score = visible(score, b, never);
        store(scores + b * BLOCK, score);
        most = maximum(most, score);
    }
    const float new_largest = std::max(largest, maximum_of(most));
    if (new_largest != largest) {
        alignas(64) float shrink[LANES];
        store(shrink, exponential(broadcast(largest - new_largest)));
        scale_row(values, head_dim, shrink[0]);
        sum *= shrink[0];
        largest = new_largest;
    }
    const Lanes nothing = broadcast(0.0f), top = broadcast(largest);
    Lanes total = nothing;
    for (int b = 0; b < num_blocks; ++b) {
        Lanes weight = exponential(load(scores + b * BLOCK) - top);
        total = total + visible(weight, b, nothing);
        if (range.scaled) weight = weight * load(range.scales[b] + BLOCK);
        store(weights + b * BLOCK, visible(weight, b, nothing));
    }
    sum += sum_of(total);
}

static inline void weigh_tile(const AttentionRule& rule, const KeyBlocks& range, const Queries& queries, float* scores,
                              bf16* weights, Softmax& softmax) {
    for (int q = 0; q < queries.count; ++q) {
        const int position = queries.position + q * queries.step;
        const bool whole = range.num_blocks == RANGE_BLOCKS && position >= range.first_key + RANGE - 1 &&
                           rule.first_key(position) <= range.first_key;
        const auto run = whole ? weigh<true> : weigh<false>;
        run(rule, range, position, softmax.head_dim, scores + q * RANGE, weights + q * RANGE,
            softmax.values + q * softmax.head_dim, softmax.maximum[q], softmax.sum[q]);
    }
}

// `softmax` over more keys: those of `other`.
static inline void merge(Softmax& softmax, const Softmax& other) {
    for (int q = 0; q < softmax.count; ++q) {
        const float largest = std::max(softmax.maximum[q], other.maximum[q]);
        const float mine = std::exp(softmax.maximum[q] - largest), its = std::exp(other.maximum[q] - largest);
        for (int i = q * softmax.head_dim; i < (q + 1) * softmax.head_dim; i += LANES)
            store(softmax.values + i,
                  fmadd(load(softmax.values + i), broadcast(mine), load(other.values + i) * broadcast(its)));
        softmax.sum[q] = softmax.sum[q] * mine + other.sum[q] * its;
        softmax.maximum[q] = largest;
    }
}

// The averages of values; out [count] rows of head_dim, `stride` apart.
static inline void finish(const Softmax& softmax, int count, bf16* out, int64_t stride) {
    for (int q = 0; q < count; ++q) {
        const Lanes share = broadcast(1.0f / softmax.sum[q]);
        const float* values = softmax.values + q * softmax.head_dim;
        for (int i = 0; i < softmax.head_dim; i += LANES) store(out + q * stride + i, load(values + i) * share);
    }
}
