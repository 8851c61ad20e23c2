// One row of logits, read from where the model put it or copied into memory of its own. Knows no sampling parameters.
#pragma once
#include <algorithm>
#include <limits>

#include "simd.h"

static constexpr int CHUNK = 256;  // tokens whose weights are added up on their own
static constexpr float INFINITE = std::numeric_limits<float>::infinity();

struct Peak {
    float value;
    bool is_finite;  // no NaN and no +infinity among the logits; -infinity is a token that never comes
};

static inline Peak peak_of(const float* row, int n) {
    Lanes peak = broadcast(-INFINITE);
    const Lanes infinite = broadcast(INFINITE);
    unsigned finite = 0xFFFF;
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        const Lanes v = load(row + i);
        finite &= less(v, infinite);
        peak = maximum(peak, v);
    }
    Peak found{maximum_of(peak), finite == 0xFFFF};
    for (; i < n; ++i) {
        found.is_finite &= row[i] < INFINITE;
        found.value = std::max(found.value, row[i]);
    }
    return found;
}

static inline int first_equal(const float* row, int n, float value) {
    int i = 0;
    const Lanes wanted = broadcast(value);
    for (; i + LANES <= n; i += LANES)  // nothing is above the peak: what is not less is equal
        if (const unsigned less_than = less(load(row + i), wanted); less_than != 0xFFFF)
            return i + __builtin_ctz(~less_than);
    while (i < n && row[i] != value) ++i;
    return i;
}

// A copy, padded with tokens that never come to whole chunks.
struct TokenRow {
    float* values;
    int num_tokens, num_chunks;

    static size_t bytes(int num_tokens) { return (size_t)(num_tokens + CHUNK - 1) / CHUNK * CHUNK * sizeof(float); }

    TokenRow(float* memory, const float* logits, int num_tokens)
        : values(memory), num_tokens(num_tokens), num_chunks((num_tokens + CHUNK - 1) / CHUNK) {
        std::copy(logits, logits + num_tokens, values);
        std::fill(values + num_tokens, values + num_chunks * CHUNK, -INFINITE);
    }
};
