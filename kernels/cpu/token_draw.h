// From one row of logits to weights, through the filters, to a token.
#pragma once
#include "token_cut.h"

struct Filters {
    int top_k;  // 0: all
    float top_p, min_p;
};

// Weights of a row's tokens, e^((logit - peak) / temperature), with the sum and the largest of each chunk.
class Weights {
  public:
    static size_t bytes(int num_tokens) { return TokenRow::bytes(num_tokens) / CHUNK * (CHUNK + 2); }

    // In the place of the row's values; `memory` for what else is needed, bytes(num_tokens).
    Weights(TokenRow& row, float peak, float temperature, float* memory)
        : weights_(row.values),
          num_tokens_(row.num_tokens),
          num_chunks_(row.num_chunks),
          memory_(memory),
          sums_(memory + row.num_chunks * CHUNK),
          largest_(sums_ + row.num_chunks) {
        const Lanes shift = broadcast(peak), scale = broadcast(1.0f / temperature);
        const Lanes least = broadcast(-87.0f);  // e^-87 is the least that `exponential` gives: what is less counts as 0
        for_each_chunk([&](int chunk, float* w) {
            Lanes sum = broadcast(0.0f), largest = sum;
            for (int i = 0; i < CHUNK; i += LANES) {
                const Lanes x = (load(w + i) - shift) * scale;
                const Lanes weight = where_at_least(x, least, exponential(x));
                store(w + i, weight);
                sum = sum + weight;
                largest = maximum(largest, weight);
            }
            sums_[chunk] = sum_of(sum);
            largest_[chunk] = maximum_of(largest);
        });
    }

    void filter(const Filters& filters) {
        const bool has_top_k = 0 < filters.top_k && filters.top_k < num_tokens_, has_top_p = filters.top_p < 1;
        Cut cut;
        if (has_top_k) {
            const Candidates candidates = gather(floor_of(filters.top_k));
            cut = cut_by_count(candidates, filters.top_k);
            if (has_top_p) cut = cut_by_sum(candidates, filters.top_p * sum_kept(candidates, cut));
        } else if (has_top_p) {
            // Tokens below this floor weigh too little, even all together, to be needed.
            const double whole = total(), floor = (1.0 - filters.top_p) * whole / num_tokens_;
            cut = cut_by_sum(gather((float)floor), filters.top_p * whole);
        }
        if (filters.min_p > cut.least) cut = {filters.min_p};
        if (cut.least > 0) apply(cut);
    }

    // The token where the sum of weights passes `uniform` of the whole.
    int draw(double uniform) const {
        double target = uniform * total();
        const int chunk = pass(sums_, num_chunks_, target);
        return chunk * CHUNK + pass(weights_ + chunk * CHUNK, CHUNK, target);
    }

  private:
    template <class F>
    void for_each_chunk(F f) {
        for (int chunk = 0; chunk < num_chunks_; ++chunk) f(chunk, weights_ + chunk * CHUNK);
    }

    double total() const {
        double sum = 0;
        for (int chunk = 0; chunk < num_chunks_; ++chunk) sum += sums_[chunk];
        return sum;
    }

    // A weight that at least k tokens reach: the k-th largest of the chunks' largest, if there are so many.
    float floor_of(int k) {
        if (k > num_chunks_) return 0.0f;
        std::nth_element(largest_, largest_ + k - 1, largest_ + num_chunks_, [](float a, float b) { return a > b; });
        return largest_[k - 1];
    }

    // The weights above 0 that are not below the floor.
    Candidates gather(float floor) const {
        Candidates candidates(memory_);
        const Lanes least = broadcast(std::max(floor, std::numeric_limits<float>::min()));
        for (const float* w = weights_; w < weights_ + num_chunks_ * CHUNK; w += LANES)
            for (unsigned hits = ~less(load(w), least) & 0xFFFF; hits; hits &= hits - 1)
                candidates.push(w[__builtin_ctz(hits)]);
        candidates.finish();
        return candidates;
    }

    void apply(Cut cut) {
        const Lanes least = broadcast(cut.least), above = broadcast(next_above(cut.least));
        int64_t num_least = 0;
        for_each_chunk([&](int chunk, float* w) {
            Lanes sum = broadcast(0.0f);
            for (int i = 0; i < CHUNK; i += LANES) {
                const Lanes weight = load(w + i);
                for (unsigned equal = ~less(weight, least) & less(weight, above); equal; equal &= equal - 1)
                    if (++num_least > cut.num_least) w[i + __builtin_ctz(equal)] = 0;
                const Lanes kept = where_at_least(weight, least, load(w + i));
                store(w + i, kept);
                sum = sum + kept;
            }
            sums_[chunk] = sum_of(sum);
        });
    }

    // Where the running sum passes target, which becomes what is left of it there; where rounding takes it past the end, the
    // last place that has any weight.
    static int pass(const float* weights, int n, double& target) {
        int found = 0;
        double before = 0, sum = 0;
        for (int i = 0; i < n && sum <= target; ++i)
            if (weights[i] > 0) {
                found = i;
                before = sum;
                sum += weights[i];
            }
        target -= before;
        return found;
    }

    float* weights_;
    int num_tokens_, num_chunks_;
    float *memory_, *sums_, *largest_;  // memory_ has room for all weights
};
