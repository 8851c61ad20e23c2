// Rotary embedding, the paged KV cache and attention over it, for head dimensions 32, 64, 96 and 128.
// A cache block holds 16 tokens of one KV head in the order that vdpbf16ps wants: keys [D / 2][16 tokens][2],
// values [16 / 2 tokens][D][2]. A query's arithmetic depends on its own position only, never on its batch.
#include <algorithm>

#include "simd.h"

static constexpr int BLOCK = 16;

struct Heads {
    int num_heads, num_kv_heads, head_dim;
    int qkv_size() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// Rotate one head, halves against each other (GPT-NeoX): from `x` to `out`, which may be the same.
static void rotate(const bf16* x, bf16* out, const float* cos, const float* sin, int head_dim) {
    const int half = head_dim / 2;
    for (int i = 0; i < half; i += 16) {
        const __m512 low = load(x + i), high = load(x + half + i);
        const __m512 c = _mm512_loadu_ps(cos + i), s = _mm512_loadu_ps(sin + i);
        store(out + i, _mm512_fmsub_ps(low, c, _mm512_mul_ps(high, s)));
        store(out + half + i, _mm512_fmadd_ps(high, c, _mm512_mul_ps(low, s)));
    }
}

// A softmax whose maximum, sum and weighted values are updated block by block (Milakov and Gimelshein 2018,
// arXiv:1805.02867), for G query heads that share one KV head.
template <int D, int G>
struct Softmax {
    __m512 values[G][D / 16];
    float maximum[G], sum[G];

    Softmax() {
        for (int g = 0; g < G; ++g) {
            maximum[g] = -INFINITY;
            sum[g] = 0.0f;
            for (int i = 0; i < D / 16; ++i) values[g][i] = _mm512_setzero_ps();
        }
    }

    // One block, of which the first `num_keys` tokens exist. query: G heads of D.
    void add_block(const bf16* query, const bf16* keys, const bf16* block_values, int num_keys, float scale) {
        __m512 scores[G];
        for (int g = 0; g < G; ++g) scores[g] = _mm512_setzero_ps();
        for (int d = 0; d < D; d += 2) {
            const __m512bh key = load_pairs(keys + d * BLOCK);
            for (int g = 0; g < G; ++g) scores[g] = _mm512_dpbf16_ps(scores[g], key, broadcast_pair(query + g * D + d));
        }
        bf16 weights[G][BLOCK];
        for (int g = 0; g < G; ++g) store(weights[g], weigh(g, scores[g], num_keys, scale));
        int j = 0;
        for (; j + 1 < num_keys; j += 2)
            for (int i = 0; i < D / 16; ++i) add_pair(weights, j, i, load_pairs(block_values + j * D + i * 32));
        if (j < num_keys)  // half a pair: the other token doesn't exist; its weight is 0, but its slot may hold NaN
            for (int i = 0; i < D / 16; ++i)
                add_pair(weights, j, i, load_first_of_pairs(block_values + j * D + i * 32));
    }

    void finish(bf16* out) const {
        for (int g = 0; g < G; ++g)
            for (int i = 0; i < D / 16; ++i)
                store(out + g * D + i * 16, _mm512_mul_ps(values[g][i], _mm512_set1_ps(1.0f / sum[g])));
    }

  private:
    void add_pair(const bf16 (*weights)[BLOCK], int j, int i, __m512bh value) {
        for (int g = 0; g < G; ++g)
            values[g][i] = _mm512_dpbf16_ps(values[g][i], value, broadcast_pair(weights[g] + j));
    }

    __m512 weigh(int g, __m512 score, int num_keys, float scale) {
        const __mmask16 exists = (__mmask16)((1u << num_keys) - 1);
        score = _mm512_mask_mul_ps(_mm512_set1_ps(-INFINITY), exists, score, _mm512_set1_ps(scale));
        const float new_maximum = std::max(maximum[g], _mm512_reduce_max_ps(score));
        if (new_maximum != maximum[g]) {
            const float shrink = std::exp(maximum[g] - new_maximum);
            sum[g] *= shrink;
            for (int i = 0; i < D / 16; ++i) values[g][i] = _mm512_mul_ps(values[g][i], _mm512_set1_ps(shrink));
            maximum[g] = new_maximum;
        }
        const __m512 weight =
            _mm512_maskz_mov_ps(exists, exp_ps(_mm512_sub_ps(score, _mm512_set1_ps(maximum[g]))));
        sum[g] += _mm512_reduce_add_ps(weight);
        return weight;
    }
};

template <int D, int G>
static void attend(const bf16* query, const bf16* keys, const bf16* values, const int32_t* table, int64_t block_stride,
                   int num_keys, float scale, bf16* out) {
    Softmax<D, G> softmax;
    for (int first = 0; first < num_keys; first += BLOCK) {
        const int64_t at = table[first / BLOCK] * block_stride;
        softmax.add_block(query, keys + at, values + at, std::min(BLOCK, num_keys - first), scale);
    }
    softmax.finish(out);
}

// The query heads of one KV head, as many at once as registers hold.
template <int D>
static void attend_group(int group, const bf16* query, const bf16* keys, const bf16* values, const int32_t* table,
                         int64_t block_stride, int num_keys, bf16* out) {
    const float scale = 1.0f / std::sqrt((float)D);
    while (group > 0) {
        const int heads = D > 64 ? std::min(group, 2) : std::min(group, 4);
        const auto run = heads == 1 ? attend<D, 1> : heads == 2 ? attend<D, 2> : heads == 3 ? attend<D, 3> : attend<D, 4>;
        run(query, keys, values, table, block_stride, num_keys, scale, out);
        query += heads * D;
        out += heads * D;
        group -= heads;
    }
}

extern "C" {
// Rotates the queries of qkv [T, qkv_size] in place; puts rotated keys and values into the layer's cache.
// cos, sin [context, D / 2]; positions [T]; slots [T] number tokens of the cache.
void rope_and_store(bf16* qkv, const float* cos, const float* sin, const int32_t* positions, const int64_t* slots,
                    bf16* keys, bf16* values, int T, int num_heads, int num_kv_heads, int D, int threads) {
    const Heads heads{num_heads, num_kv_heads, D};
#pragma omp parallel for schedule(static) num_threads(threads) if (T >= 8)
    for (int t = 0; t < T; ++t) {
        const float* c = cos + (int64_t)positions[t] * (D / 2);
        const float* s = sin + (int64_t)positions[t] * (D / 2);
        const int64_t block = slots[t] / BLOCK;
        const int offset = (int)(slots[t] % BLOCK);
        bf16* row = qkv + (int64_t)t * heads.qkv_size();
        for (int h = 0; h < num_heads; ++h) rotate(row + h * D, row + h * D, c, s, D);
        for (int h = 0; h < num_kv_heads; ++h) {
            bf16* key = row + (num_heads + h) * D;
            const bf16* value = row + (num_heads + num_kv_heads + h) * D;
            bf16* key_block = keys + (block * num_kv_heads + h) * BLOCK * D;
            bf16* value_block = values + (block * num_kv_heads + h) * BLOCK * D + offset / 2 * 2 * D + offset % 2;
            rotate(key, key, c, s, D);
            for (int d = 0; d < D; d += 2) memcpy(key_block + d * BLOCK + 2 * offset, key + d, 2 * sizeof(bf16));
            for (int d = 0; d < D; ++d) value_block[2 * d] = value[d];
        }
    }
}

// Each row of qkv [T, qkv_size] attends to tokens 0..positions[t] of its sequence; out [T, num_heads * D].
// tables [S, table_width] block ids; sequences [T] says whose row it is.
void paged_attention(const bf16* qkv, const bf16* keys, const bf16* values, const int32_t* tables,
                     const int32_t* sequences, const int32_t* positions, bf16* out, int T, int table_width,
                     int num_heads, int num_kv_heads, int D, int threads) {
    const Heads heads{num_heads, num_kv_heads, D};
    const int group = num_heads / num_kv_heads;
    const auto run = D == 32 ? attend_group<32> : D == 64 ? attend_group<64> : D == 96 ? attend_group<96> : attend_group<128>;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int task = 0; task < T * num_kv_heads; ++task) {
        const int t = task / num_kv_heads, h = task % num_kv_heads;
        const int64_t within = (int64_t)h * BLOCK * D;  // where this KV head begins inside a block
        run(group, qkv + (int64_t)t * heads.qkv_size() + h * group * D, keys + within, values + within,
            tables + (int64_t)sequences[t] * table_width, (int64_t)num_kv_heads * BLOCK * D, positions[t] + 1,
            out + ((int64_t)t * num_heads + h * group) * D);
    }
}
}
