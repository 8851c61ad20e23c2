// Norms and rotates queries and keys, and puts keys and values into the cache.
#include <limits>

#include "cache.h"
#include "worker.h"

struct RopeArguments {
    bf16* qkv;               // [T, qkv_size]; queries are rotated in place
    const float *cos, *sin;  // [context, rotary_dim / 2]
    const Cache* cache;
    const float *query_norm, *key_norm;  // [head_dim], or null: no norms
    float eps;
    int num_heads, rotary_dim;
};

namespace {

constexpr int MAX_HEAD_DIM = 512;

// One head, as float32 while it is worked on.
class Head {
  public:
    Head(const bf16* x, int size) : size_(size) {
        for (int i = 0; i < size; i += LANES) store(values_ + i, load(x + i));
    }

    void normalise(const float* weight, float eps) {
        Lanes squares = broadcast(0.0f);
        for (int i = 0; i < size_; i += LANES) squares = fmadd(load(values_ + i), load(values_ + i), squares);
        const Lanes scale = broadcast(1.0f / std::sqrt(sum_of(squares) / size_ + eps));
        for (int i = 0; i < size_; i += LANES) store(values_ + i, load(values_ + i) * scale * load(weight + i));
    }

    // Halves of the first 2 * half values against each other (GPT-NeoX's order).
    void rotate(const float* cos, const float* sin, int half) {
        for (int i = 0; i < half; ++i) {
            const float low = values_[i], high = values_[half + i];
            values_[i] = low * cos[i] - high * sin[i];
            values_[half + i] = high * cos[i] + low * sin[i];
        }
    }

    void put(bf16* out) const {
        for (int i = 0; i < size_; i += LANES) store(out + i, load(values_ + i));
    }

    // Codes out, and their scale; that one is NaN if a value is NaN or infinite, which no code can say.
    template <class Code>
    float encode(typename Code::Element* out) const {
        Lanes most = broadcast(0.0f), nothing = most;
        for (int i = 0; i < size_; i += LANES) {
            const Lanes x = load(values_ + i);
            most = maximum(most, absolute(x));
            nothing = nothing + x * broadcast(0.0f);
        }
        const float scale = maximum_of(most) / Code::LARGEST + sum_of(nothing);
        if (!(scale >= SMALLEST)) {
            std::fill(out, out + size_, 0);
            return scale < SMALLEST ? 0.0f : scale;
        }
        const float inverse = 1.0f / scale;
        for (int i = 0; i < size_; ++i) out[i] = Code::encode(values_[i] * inverse);
        return scale;
    }

  private:
    static constexpr float SMALLEST = std::numeric_limits<float>::min();  // of scales: below, 1 / scale may overflow
    const int size_;
    alignas(64) float values_[MAX_HEAD_DIM];
};

template <class Element>
void put_key(const Element* key, Element* page, int offset, int head_dim) {
    for (int d = 0; d < head_dim; d += 2) memcpy(page + d * BLOCK + 2 * offset, key + d, 2 * sizeof(Element));
}

template <class Element>
void put_value(const Element* value, Element* values, int offset, int head_dim) {
    Element* out = values + offset / 2 * 2 * head_dim + offset % 2;
    for (int d = 0; d < head_dim; ++d) out[2 * d] = value[d];
}

void put_token(const Cache& cache, int64_t page, int offset, const Head& key, const Head& value) {
    const int dim = cache.head_dim;
    const auto put = [&](auto* keys, const auto* k, const auto* v) {
        put_key(k, keys, offset, dim);
        put_value(v, keys + cache.key_size(), offset, dim);
    };
    const auto put_codes = [&](auto code) {
        using Code = decltype(code);
        typename Code::Element k[MAX_HEAD_DIM], v[MAX_HEAD_DIM];
        float* scales = cache.scales + page * 2 * BLOCK + offset;
        scales[0] = key.template encode<Code>(k);
        scales[BLOCK] = value.template encode<Code>(v);
        put(cache.keys<typename Code::Element>(page), k, v);
    };
    if (cache.type == CACHE_INT8) return put_codes(Int8{});
    if (cache.type == CACHE_FP8) return put_codes(Fp8{});
    bf16 k[MAX_HEAD_DIM], v[MAX_HEAD_DIM];
    key.put(k);
    value.put(v);
    put(cache.keys<bf16>(page), k, v);
}

void rope_row(const RopeArguments& a, int position, int64_t slot, bf16* row) {
    const int dim = a.cache->head_dim, half = a.rotary_dim / 2;
    const float *cos = a.cos + (int64_t)position * half, *sin = a.sin + (int64_t)position * half;
    const auto rotated = [&](const bf16* x, const float* norm) {
        Head head(x, dim);
        if (norm) head.normalise(norm, a.eps);
        head.rotate(cos, sin, half);
        return head;
    };
    for (int h = 0; h < a.num_heads; ++h, row += dim) rotated(row, a.query_norm).put(row);
    for (int h = 0; h < a.cache->num_kv_heads; ++h, row += dim)
        put_token(*a.cache, a.cache->page(slot / BLOCK, h), (int)(slot % BLOCK), rotated(row, a.key_norm),
                  Head(row + a.cache->num_kv_heads * dim, dim));
}

}  // namespace

extern "C" void rope_and_store(const RopeArguments& a, const Step& step, Worker& worker) {
    const int qkv_size = (a.num_heads + 2 * a.cache->num_kv_heads) * a.cache->head_dim;
    worker.deal(step.num_rows, 8, [&](int first, int last) {
        for (int t = first; t < last; ++t)
            rope_row(a, step.positions[t], step.slots[t], a.qkv + (int64_t)t * qkv_size);
    });
}
