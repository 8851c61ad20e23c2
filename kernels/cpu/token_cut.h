// Where top-k and top-p cut a row's tokens off. Every filter is a cut through them in the order of falling weight and, among
// equals, rising id: what it keeps is a prefix of that order. Found by bisection: no sort, however flat the weights are.
#pragma once
#include "token_row.h"

// Weights above 0, in no order, that counts and sums are asked of: padded with zeros to whole registers.
class Candidates {
  public:
    explicit Candidates(float* memory) : weights_(memory) {}

    void push(float weight) { weights_[size_++] = weight; }
    void finish() {
        while (size_ % LANES) push(0.0f);
    }

    int count_from(float least) const {
        int count = 0;
        for (int i = 0; i < size_; i += LANES)
            count += LANES - __builtin_popcount(less(load(weights_ + i), broadcast(least)));
        return count;
    }

    double sum_from(float least) const {
        double total = 0;
        for (int first = 0; first < size_; first += CHUNK) {
            Lanes sum = broadcast(0.0f);
            for (int i = first; i < std::min(first + CHUNK, size_); i += LANES) {
                const Lanes w = load(weights_ + i);
                sum = sum + where_at_least(w, broadcast(least), w);
            }
            total += sum_of(sum);
        }
        return total;
    }

  private:
    float* weights_;
    int size_ = 0;
};

// A positive float's neighbours are its bits' neighbours.
static inline float weight_of(uint32_t bits) {
    float weight;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}
static inline float next_above(float weight) {
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return weight_of(bits + 1);
}

// The largest weight of 1 at most from which on there is enough, 0 if there is nowhere. Thirty looks, whatever the weights.
template <class F>
static float largest_with_enough(F is_enough_from) {
    uint32_t enough = 0, too_little = 0x3F800001;  // the bits of the float after 1
    while (too_little - enough > 1) {
        const uint32_t middle = enough + (too_little - enough) / 2;
        (is_enough_from(weight_of(middle)) ? enough : too_little) = middle;
    }
    return weight_of(enough);
}

// Keeps the weights above `least`, and the first num_least tokens of this weight.
struct Cut {
    float least = 0;
    int64_t num_least = std::numeric_limits<int>::max();
};

static Cut cut_by_count(const Candidates& candidates, int k) {
    const float least = largest_with_enough([&](float from) { return candidates.count_from(from) >= k; });
    return least > 0 ? Cut{least, k - candidates.count_from(next_above(least))} : Cut{};
}

// The smallest set whose weights reach `goal`.
static Cut cut_by_sum(const Candidates& candidates, double goal) {
    const float least = largest_with_enough([&](float from) { return candidates.sum_from(from) >= goal; });
    if (least == 0) return {};
    const double missing = goal - candidates.sum_from(next_above(least));
    return {least, std::max<int64_t>(1, std::ceil(missing / least))};
}

static double sum_kept(const Candidates& candidates, Cut cut) {
    if (cut.least == 0) return candidates.sum_from(0.0f);
    return candidates.sum_from(next_above(cut.least)) + (double)cut.num_least * cut.least;
}
