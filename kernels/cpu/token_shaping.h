// What changes logits before a token is drawn: a grammar's mask, biases, penalties. The twin's `_shape`.
#pragma once
#include "token_row.h"

// A number for some tokens of each row, kernels/sampling.py's SparseRows; offsets is null if there are none.
struct SparseRows {
    const int32_t* offsets;
    const int32_t* token_ids;
    const float* values;

    template <class F>
    void each(int row, F f) const {
        if (offsets)
            for (int i = offsets[row]; i < offsets[row + 1]; ++i) f(token_ids[i], values[i]);
    }
};

struct Shaping {
    const int32_t* mask_of_row;  // null if no row has one
    const uint32_t* masks;       // [_, words_per_mask]
    SparseRows bias, counts;
    const float* repetition;  // [R] each, null if no row has counts
    const float* frequency;
    const float* presence;
    int64_t words_per_mask;

    void apply(int row, TokenRow& tokens) const {
        if (mask_of_row && mask_of_row[row] >= 0) forbid(masks + mask_of_row[row] * words_per_mask, tokens);
        bias.each(row, [&](int id, float value) { tokens.values[id] += value; });
        counts.each(row, [&](int id, float count) {
            float& logit = tokens.values[id];
            logit = logit > 0 ? logit / repetition[row] : logit * repetition[row];
            logit = logit - frequency[row] * count - (count > 0 ? presence[row] : 0.0f);
        });
    }

  private:
    void forbid(const uint32_t* mask, TokenRow& tokens) const {
        for (int64_t word = 0; word < words_per_mask; ++word) {
            if (mask[word] == ~0u) continue;
            float* values = tokens.values + 32 * word;
            if (mask[word] == 0)
                std::fill(values, values + 32, -INFINITE);
            else
                for (int bit = 0; bit < 32; ++bit)
                    if (!(mask[word] >> bit & 1)) values[bit] = -INFINITE;
        }
    }
};
