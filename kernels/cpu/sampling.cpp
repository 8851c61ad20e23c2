// Logits to tokens: the kernels of kernels/sampling.py's operations, a row a piece. See reference_sampling.py, their twin.
#include "token_draw.h"
#include "token_shaping.h"
#include "worker.h"

// In the place of a token id, as kernels/sampling.py has them.
static constexpr int NOT_FINITE = -1, NOTHING_LEFT = -2;

struct ArgmaxArguments {
    const float* logits;  // [R, num_tokens]
    int32_t* token_ids;   // [R]
    int num_tokens;
};

struct ChooseArguments {
    const float* logits;  // [R, num_tokens]
    int32_t* token_ids;   // [R]
    const float* temperature;  // [R], 0 for the most likely token
    const int32_t* top_k;
    const float* top_p;
    const float* min_p;
    const double* uniform;
    Shaping shaping;
    int num_tokens;
};

struct LogprobArguments {
    const float* logits;       // [R, num_tokens]
    const int32_t* token_ids;  // [R]
    float* chosen;             // [R]
    int32_t* top_ids;          // [R, num_top]
    float* top;                // [R, num_top]
    int num_top;               // at most num_tokens
    int num_tokens;
};

static int most_likely(const float* row, int n, Peak peak) {
    if (!peak.is_finite) return NOT_FINITE;
    if (peak.value == -INFINITE) return NOTHING_LEFT;
    return first_equal(row, n, peak.value);
}

static int choose_token(const ChooseArguments& a, int r, Worker& worker) {
    const float* logits = a.logits + (int64_t)r * a.num_tokens;
    if (!peak_of(logits, a.num_tokens).is_finite) return NOT_FINITE;
    const size_t row_bytes = TokenRow::bytes(a.num_tokens);
    char* memory = (char*)worker.scratch(row_bytes + Weights::bytes(a.num_tokens));
    TokenRow row((float*)memory, logits, a.num_tokens);
    a.shaping.apply(r, row);
    const Peak peak = peak_of(row.values, a.num_tokens);
    if (a.temperature[r] == 0 || !peak.is_finite || peak.value == -INFINITE) return most_likely(row.values, a.num_tokens, peak);
    Weights weights(row, peak.value, a.temperature[r], (float*)(memory + row_bytes));
    weights.filter({a.top_k[r], a.top_p[r], a.min_p[r]});
    return weights.draw(a.uniform[r]);
}

// The n most likely tokens in falling order, among equals in the order of their ids.
static void find_top(const float* row, int num_tokens, int n, int32_t* ids, float* values) {
    int found = 0;
    const auto insert = [&](int id) {
        int place = found < n ? found++ : n - 1;
        for (; place > 0 && values[place - 1] < row[id]; --place) {
            values[place] = values[place - 1];
            ids[place] = ids[place - 1];
        }
        values[place] = row[id];
        ids[place] = id;
    };
    int id = 0;
    while (id < n) insert(id++);
    if (n == 0) return;
    for (; id + LANES <= num_tokens; id += LANES)
        for (unsigned hits = less(broadcast(values[n - 1]), load(row + id)); hits; hits &= hits - 1)
            if (const int lane = __builtin_ctz(hits); row[id + lane] > values[n - 1]) insert(id + lane);
    for (; id < num_tokens; ++id)
        if (row[id] > values[n - 1]) insert(id);
}

// The logarithm of the sum of e^logit.
static double log_sum(const float* row, int n, float peak) {
    double total = 0;
    for (int first = 0; first < n; first += CHUNK) {
        const int last = std::min(n, first + CHUNK);
        Lanes sum = broadcast(0.0f);
        int i = first;
        for (; i + LANES <= last; i += LANES) sum = sum + exponential(load(row + i) - broadcast(peak));
        total += sum_of(sum);
        for (; i < last; ++i) total += std::exp(row[i] - peak);
    }
    return peak + std::log(total);
}

extern "C" {
void argmax_rows(const ArgmaxArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, 1, [&](int r, int) {
        const float* row = a.logits + (int64_t)r * a.num_tokens;
        a.token_ids[r] = most_likely(row, a.num_tokens, peak_of(row, a.num_tokens));
    });
}

void choose_rows(const ChooseArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, 1, [&](int r, int) { a.token_ids[r] = choose_token(a, r, worker); });
}

void logprob_rows(const LogprobArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, 1, [&](int r, int) {
        const float* row = a.logits + (int64_t)r * a.num_tokens;
        float* top = a.top + (int64_t)r * a.num_top;
        const Peak peak = peak_of(row, a.num_tokens);
        find_top(row, a.num_tokens, a.num_top, a.top_ids + (int64_t)r * a.num_top, top);
        const double constant =
            peak.is_finite ? log_sum(row, a.num_tokens, peak.value) : std::numeric_limits<double>::quiet_NaN();
        a.chosen[r] = (float)(row[a.token_ids[r]] - constant);
        for (int i = 0; i < a.num_top; ++i) top[i] = (float)(top[i] - constant);
    });
}
}
