// What happens to a row on its own: norms, with the residual's sum, the gate of the feed-forward layer, the logits' cap.
#include "activation.h"
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

struct SoftcapArguments {
    float* logits;  // [R, size]
    int size;
    float cap;
};

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

// logits = cap * tanh(logits / cap), in place.
void softcap_logits(const SoftcapArguments& a, const Step& step, Worker& worker) {
    constexpr int PIECE = 4096;
    const int64_t num_logits = (int64_t)step.num_rows * a.size;
    const auto cap = [&](float* p) {
        store(p, broadcast(a.cap) * hyperbolic_tangent(load(p) * broadcast(1.0f / a.cap)));
    };
    worker.deal((int)((num_logits + PIECE - 1) / PIECE), 1, [&](int piece, int) {
        const int64_t end = std::min(num_logits, (int64_t)(piece + 1) * PIECE);
        int64_t i = (int64_t)piece * PIECE;
        for (; i + LANES <= end; i += LANES) cap(a.logits + i);
        float rest[LANES] = {};
        std::copy(a.logits + i, a.logits + end, rest);
        cap(rest);
        std::copy(rest, rest + (end - i), a.logits + i);
    });
}

void gated_silu(const GateArguments& a, const Step& step, Worker& worker) { gate_rows<silu>(a, step, worker); }

void gated_gelu_tanh(const GateArguments& a, const Step& step, Worker& worker) { gate_rows<gelu_tanh>(a, step, worker); }
}
