// y = x W^T in bfloat16 with float32 sums. W is packed in panels of 32 outputs: [panel][K / 2][32][2].
// Every output is summed over K in one accumulator, in order: a row's bits don't depend on how many rows there are.
#include <algorithm>

#include "simd.h"

static constexpr int PANEL = 32;
static constexpr int MAX_ROWS = 12;        // 24 accumulators, 2 weights, 1 input: 27 of the 32 registers
static constexpr int ROWS_IN_CACHE = 120;  // rows of x that stay in a core's L2 while panels pass by

// ROWS rows of x times one panel. `num_columns` of its 32 outputs are real.
template <int ROWS, typename Out>
static void multiply(const bf16* x, const bf16* panel, Out* y, int K, int64_t y_stride, int num_columns) {
    __m512 sums[ROWS][2];
    for (int m = 0; m < ROWS; ++m) sums[m][0] = sums[m][1] = _mm512_setzero_ps();
    for (int k = 0; k < K; k += 2, panel += 2 * PANEL) {
        const __m512bh left = load_pairs(panel), right = load_pairs(panel + PANEL);
        for (int m = 0; m < ROWS; ++m) {
            const __m512bh pair = broadcast_pair(x + (int64_t)m * K + k);
            sums[m][0] = _mm512_dpbf16_ps(sums[m][0], left, pair);
            sums[m][1] = _mm512_dpbf16_ps(sums[m][1], right, pair);
        }
    }
    const __mmask32 real = num_columns >= PANEL ? ~0u : (1u << num_columns) - 1;
    for (int m = 0; m < ROWS; ++m)
        for (int half = 0; half < 2; ++half) {
            const __mmask16 mask = (__mmask16)(real >> (16 * half));
            Out* out = y + m * y_stride + 16 * half;
            if constexpr (sizeof(Out) == sizeof(float))
                _mm512_mask_storeu_ps(out, mask, sums[m][half]);
            else
                _mm256_mask_storeu_epi16(out, mask, (__m256i)_mm512_cvtneps_pbh(sums[m][half]));
        }
}

template <typename Out, int ROWS = MAX_ROWS>
static void multiply_rows(int rows, const bf16* x, const bf16* panel, Out* y, int K, int64_t y_stride, int columns) {
    if (rows == ROWS) return multiply<ROWS, Out>(x, panel, y, K, y_stride, columns);
    if constexpr (ROWS > 1) multiply_rows<Out, ROWS - 1>(rows, x, panel, y, K, y_stride, columns);
}

template <typename Out>
static void product(const bf16* x, const bf16* packed, Out* y, int T, int N, int K, int threads) {
    const int num_panels = (N + PANEL - 1) / PANEL;
#pragma omp parallel num_threads(threads)
    for (int first = 0; first < T; first += ROWS_IN_CACHE) {
        const int last = std::min(T, first + ROWS_IN_CACHE);
#pragma omp for schedule(static) nowait
        for (int p = 0; p < num_panels; ++p)
            for (int t = first; t < last; t += MAX_ROWS)
                multiply_rows<Out>(std::min(MAX_ROWS, last - t), x + (int64_t)t * K,
                                   packed + (int64_t)p * PANEL * K, y + (int64_t)t * N + p * PANEL, K, N,
                                   N - p * PANEL);
    }
}

extern "C" {
// x [T, K] bf16 -> y [T, N] bf16; K is even.
void product_bf16(const bf16* x, const bf16* packed, bf16* y, int T, int N, int K, int threads) {
    product<bf16>(x, packed, y, T, N, K, threads);
}

// The same with float32 out.
void product_float(const bf16* x, const bf16* packed, float* y, int T, int N, int K, int threads) {
    product<float>(x, packed, y, T, N, K, threads);
}
}
