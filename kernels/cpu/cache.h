// Where the keys and values of a token lie. A page is what one block of the cache holds for one KV head: 16 tokens' keys, then
// their values, in pairs as vdpbf16ps and AMX want them:
//
//     keys [head_dim / 2][16 tokens][2], values [16 / 2 tokens][head_dim][2]
//
// Elements are bfloat16, or bytes with a scale for each token: scales [block][kv head][keys, values][16 tokens] float32.
#pragma once
#include "simd.h"

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
