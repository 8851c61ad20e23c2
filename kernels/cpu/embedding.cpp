// The first thing a model does: rows of a table, times a scale, into the float32 residual stream.
#include "code_layout.h"
#include "simd.h"
#include "worker.h"

struct EmbeddingArguments {
    const int64_t* token_ids;
    const void* table;  // [vocabulary, size] bfloat16, or codes: bytes, or halves of bytes as in HalfBytes
    const float* scales;    // [vocabulary, size / GROUP], of codes
    const float* minimums;
    float* out;  // [T, size]
    int size;    // a multiple of 16; of GROUP with codes
    float scale;
};

struct PackEmbeddingArguments {
    const uint8_t* codes;  // [vocabulary, bytes of a row]
    const CodeLayout* layout;
    uint8_t* table;  // [vocabulary, size / GROUP, GROUP_BYTES]
    int vocabulary, size, bits;
};

struct Bytes {
    static constexpr int GROUP_BYTES = GROUP;
    static void unpack(const uint8_t* group, Lanes& first, Lanes& second) {
        first = load(group);
        second = load(group + LANES);
    }
    static void pack(__m256i codes, uint8_t* group) { _mm256_storeu_si256((__m256i*)group, codes); }
};

struct HalfBytes {  // of byte i the lower half is code i, the upper one is code i + 16
    static constexpr int GROUP_BYTES = GROUP / 2;
    static void unpack(const uint8_t* group, Lanes& first, Lanes& second) {
        const __m128i bytes = _mm_loadu_si128((const __m128i*)group), mask = _mm_set1_epi8(15);
        alignas(16) uint8_t lower[LANES], upper[LANES];
        _mm_store_si128((__m128i*)lower, _mm_and_si128(bytes, mask));
        _mm_store_si128((__m128i*)upper, _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
        first = load(lower);
        second = load(upper);
    }
    static void pack(__m256i codes, uint8_t* group) {
        const __m128i lower = _mm256_castsi256_si128(codes), upper = _mm256_extracti128_si256(codes, 1);
        _mm_storeu_si128((__m128i*)group, _mm_or_si128(lower, _mm_slli_epi16(upper, 4)));
    }
};

template <class Codes>
static void embed_codes(const EmbeddingArguments& a, const Step& step, Worker& worker) {
    const int groups = a.size / GROUP;
    const Lanes scale = broadcast(a.scale);
    worker.deal(step.num_rows, 8, [&](int first, int last) {
        for (int t = first; t < last; ++t)
            for (int g = 0; g < groups; ++g) {
                const int64_t group = a.token_ids[t] * groups + g;
                float* out = a.out + (int64_t)t * a.size + g * GROUP;
                Lanes left, right;
                Codes::unpack((const uint8_t*)a.table + group * Codes::GROUP_BYTES, left, right);
                const Lanes step_size = broadcast(a.scales[group]), minimum = broadcast(a.minimums[group]);
                store(out, fmadd(left, step_size, minimum) * scale);
                store(out + LANES, fmadd(right, step_size, minimum) * scale);
            }
    });
}

extern "C" {
void pack_embedding(const PackEmbeddingArguments& a, const Step&, Worker& worker) {
    const int groups = a.size / GROUP, group_bytes = GROUP * a.bits / 8, block_groups = a.layout->block_groups;
    worker.deal(a.vocabulary, 64, [&](int first, int last) {
        for (int t = first; t < last; ++t) {
            const uint8_t* row = a.codes + t * a.layout->row_bytes(a.size);
            uint8_t* to = a.table + (int64_t)t * groups * group_bytes;
            for (int g = 0; g < groups; ++g, to += group_bytes) {
                const uint8_t* block = row + (int64_t)(g / block_groups) * a.layout->block_bytes;
                const __m256i codes = a.layout->codes(block, g % block_groups);
                a.bits == 8 ? Bytes::pack(codes, to) : HalfBytes::pack(codes, to);
            }
        }
    });
}

void embed_bf16(const EmbeddingArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, 8, [&](int first, int last) {
        for (int t = first; t < last; ++t) {
            const bf16* row = (const bf16*)a.table + a.token_ids[t] * a.size;
            for (int i = 0; i < a.size; i += LANES)
                store(a.out + (int64_t)t * a.size + i, load(row + i) * broadcast(a.scale));
        }
    });
}

void embed_bytes(const EmbeddingArguments& a, const Step& step, Worker& worker) { embed_codes<Bytes>(a, step, worker); }

void embed_half_bytes(const EmbeddingArguments& a, const Step& step, Worker& worker) {
    embed_codes<HalfBytes>(a, step, worker);
}
}
