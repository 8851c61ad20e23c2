// What happens to a row on its own: residual add with RMS norm, and the gate of the feed-forward layer.
#include "simd.h"

static constexpr int ROWS_WORTH_THREADS = 16;

extern "C" {
// residual [T, C] float += update [T, C] bf16 (may be null); out [T, C] bf16 = RMSNorm(residual) * weight. C % 16 == 0.
void add_rms_norm(float* residual, const bf16* update, const float* weight, bf16* out, int T, int C, float eps,
                  int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (T >= ROWS_WORTH_THREADS)
    for (int t = 0; t < T; ++t) {
        float* row = residual + (int64_t)t * C;
        __m512 squares = _mm512_setzero_ps();
        for (int c = 0; c < C; c += 16) {
            __m512 v = _mm512_loadu_ps(row + c);
            if (update) {
                v = _mm512_add_ps(v, load(update + (int64_t)t * C + c));
                _mm512_storeu_ps(row + c, v);
            }
            squares = _mm512_fmadd_ps(v, v, squares);
        }
        const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / C + eps));
        for (int c = 0; c < C; c += 16)
            store(out + (int64_t)t * C + c,
                  _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(row + c), scale), _mm512_loadu_ps(weight + c)));
    }
}

// gate_up [T, 2 I] bf16 -> out [T, I] bf16 = silu(gate) * up. I % 16 == 0.
void silu_mul(const bf16* gate_up, bf16* out, int T, int I, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (T >= ROWS_WORTH_THREADS)
    for (int t = 0; t < T; ++t)
        for (int i = 0; i < I; i += 16) {
            const bf16* row = gate_up + (int64_t)t * 2 * I + i;
            const __m512 gate = load(row), up = load(row + I);
            // Below -87 exp_ps would clamp anyway; above, e^-gate overflows to nothing worse than a gate of 0.
            const __m512 decay = exp_ps(_mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), gate), _mm512_set1_ps(87.0f)));
            const __m512 sigmoid = _mm512_div_ps(gate, _mm512_add_ps(_mm512_set1_ps(1.0f), decay));
            store(out + (int64_t)t * I + i, _mm512_mul_ps(sigmoid, up));
        }
}
}
