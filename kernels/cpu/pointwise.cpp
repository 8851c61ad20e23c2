// What happens to a row on its own: norms, with the residual's sum, and the gate of the feed-forward layer.
#include "simd.h"
#include "worker.h"

// Rows in one piece: about 16 KiB of them, so that a few rows of a small model stay with one worker.
static int rows_at_once(int columns) { return std::max(1, 4096 / columns); }

static void normalise(const float* row, float squares, const float* weight, float eps, int size, bf16* out) {
    const Lanes scale = broadcast(1.0f / std::sqrt(squares / size + eps));
    for (int i = 0; i < size; i += LANES) store(out + i, load(row + i) * scale * load(weight + i));
}

struct NormArguments {
    const bf16* x;        // [T, size]
    const float* weight;  // [size]
    bf16* out;            // [T, size]
    int size;             // a multiple of 16
    float eps;
};

struct ResidualNormArguments {
    float* residual;     // [T, size]
    const bf16* update;  // [T, size] or null
    const float* weight;
    bf16* out;
    int size;
    float eps;
};

struct GateArguments {
    const bf16* gate_up;  // [T, 2 size]
    bf16* out;            // [T, size]
    int size;             // a multiple of 16
};

// gate / (1 + e^-gate). An e^87 under the fraction is as good as infinity.
static Lanes silu(Lanes gate) { return gate / (broadcast(1.0f) + exponential(broadcast(0.0f) - gate)); }

// The approximation by tanh of Hendrycks and Gimpel 2016, arXiv:1606.08415.
static Lanes gelu_tanh(Lanes gate) {
    const Lanes cubed = gate * gate * gate;
    const Lanes inner = broadcast(0.79788456f) * fmadd(broadcast(0.044715f), cubed, gate);
    return broadcast(0.5f) * gate * (broadcast(1.0f) + hyperbolic_tangent(inner));
}

template <Lanes (*ACTIVATION)(Lanes)>
static void gate_rows(const GateArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, rows_at_once(a.size), [&](int first, int last) {
        for (int t = first; t < last; ++t) {
            const bf16* row = a.gate_up + (int64_t)t * 2 * a.size;
            bf16* out = a.out + (int64_t)t * a.size;
            for (int i = 0; i < a.size; i += LANES) store(out + i, ACTIVATION(load(row + i)) * load(row + a.size + i));
        }
    });
}

extern "C" {
// residual += update; out = RMSNorm(residual) * weight.
void add_rms_norm(const ResidualNormArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, rows_at_once(a.size), [&](int first, int last) {
        for (int t = first; t < last; ++t) {
            float* row = a.residual + (int64_t)t * a.size;
            Lanes squares = broadcast(0.0f);
            for (int i = 0; i < a.size; i += LANES) {
                Lanes v = load(row + i);
                if (a.update) {
                    v = v + load(a.update + (int64_t)t * a.size + i);
                    store(row + i, v);
                }
                squares = fmadd(v, v, squares);
            }
            normalise(row, sum_of(squares), a.weight, a.eps, a.size, a.out + (int64_t)t * a.size);
        }
    });
}

// out = RMSNorm(x) * weight.
void rms_norm(const NormArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, rows_at_once(a.size), [&](int first, int last) {
        float* row = (float*)worker.scratch(a.size * sizeof(float));
        for (int t = first; t < last; ++t) {
            Lanes squares = broadcast(0.0f);
            for (int i = 0; i < a.size; i += LANES) {
                const Lanes v = load(a.x + (int64_t)t * a.size + i);
                store(row + i, v);
                squares = fmadd(v, v, squares);
            }
            normalise(row, sum_of(squares), a.weight, a.eps, a.size, a.out + (int64_t)t * a.size);
        }
    });
}

void gated_silu(const GateArguments& a, const Step& step, Worker& worker) { gate_rows<silu>(a, step, worker); }

void gated_gelu_tanh(const GateArguments& a, const Step& step, Worker& worker) { gate_rows<gelu_tanh>(a, step, worker); }
}
