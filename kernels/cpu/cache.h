// Where the keys and values of a token lie. A page is what one block of the cache holds for one KV head: 16 tokens'
// keys, then their values, in pairs as vdpbf16ps and AMX want them:
//
//     keys [head_dim / 2][16 tokens][2], values [16 / 2 tokens][head_dim][2]
//
// Elements are bfloat16, or bytes with a scale for each token: float32 [block][kv head][keys, values][16 tokens].
#pragma once
#include "pairs.h"

static constexpr int BLOCK = 16;

enum CacheType : int { CACHE_BF16, CACHE_INT8, CACHE_FP8 };

struct Cache {
    void* pages;    // [block][kv head][2 * 16 * head_dim]
    float* scales;  // null for bfloat16
    int type, num_kv_heads, head_dim;

    int64_t page(int64_t block, int kv_head) const { return block * num_kv_heads + kv_head; }
    int key_size() const { return BLOCK * head_dim; }  // elements of a page's keys; its values are as many
    template <class Element>
    Element* keys(int64_t page) const {
        return (Element*)pages + page * 2 * key_size();
    }
};

struct Int8 {
    using Element = int8_t;
    static constexpr float LARGEST = 127.0f;

    static Element encode(float x) { return (Element)std::nearbyint(x); }
    static bf16 decode(Element code) {  // exact: 7 bits and a sign
        const float x = code;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return (bf16)(bits >> 16);
    }
};

// e4m3 without its subnormals: what is smaller than 2^-6 becomes 0.
struct Fp8 {
    using Element = uint8_t;
    static constexpr float LARGEST = 448.0f;

    static Element encode(float x) {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        const uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7FFFFFFF;
        const uint32_t rounded = (magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20;  // to even, 3 bits of fraction
        const uint32_t smallest = (127 - 6) << 3;
        return (Element)(rounded < smallest ? 0 : sign | (rounded - ((127 - 7) << 3)));
    }
    static bf16 decode(Element code) {  // exact
        const int magnitude = code & 0x7F;
        return (bf16)((code & 0x80) << 8 | (magnitude ? (magnitude << 4) + ((127 - 7) << 7) : 0));
    }
};

// 16 pairs of codes, as bfloat16.
#ifdef __AVX512BF16__
static inline Pairs load_pairs(const int8_t* codes) {
    const auto floats = [](const int8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
    };
    return _mm512_cvtne2ps_pbh(floats(codes + 16), floats(codes));
}
static inline Pairs load_pairs(const uint8_t* codes) {
    const __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)codes));
    const __m512i shifted = _mm512_and_si512(_mm512_slli_epi16(code, 4), _mm512_set1_epi16((short)0x87F0));
    const __mmask32 not_zero = _mm512_test_epi16_mask(code, _mm512_set1_epi16(0x7F));
    return (Pairs)_mm512_mask_add_epi16(shifted, not_zero, shifted, _mm512_set1_epi16((127 - 7) << 7));
}
#else
template <class Code>
static inline Pairs decode_pairs(const typename Code::Element* codes) {
    bf16 pairs[2 * LANES];
    for (int i = 0; i < 2 * LANES; ++i) pairs[i] = Code::decode(codes[i]);
    return load_pairs(pairs);
}
static inline Pairs load_pairs(const int8_t* codes) { return decode_pairs<Int8>(codes); }
static inline Pairs load_pairs(const uint8_t* codes) { return decode_pairs<Fp8>(codes); }
#endif
