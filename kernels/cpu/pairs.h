// Pairs of neighbouring bfloat16 in sixteen lanes, and their products summed in float32: vdpbf16ps or its like in AVX2.
#pragma once
#include "simd.h"

#ifdef __AVX512BF16__

using Pairs = __m512bh;

static inline void store(bf16* p, Pairs pairs) { _mm512_storeu_si512(p, (__m512i)pairs); }
static inline Lanes add_dot(Lanes sum, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sum, a, b); }

// x in the lanes from `first` up to `last`, `other` elsewhere; both may lie outside of 0..16.
static inline Lanes keep(Lanes x, int first, int last, Lanes other) {
    const uint32_t below_last = last >= LANES ? 0xFFFF : last <= 0 ? 0 : (1u << last) - 1;
    const uint32_t below_first = first >= LANES ? 0xFFFF : first <= 0 ? 0 : (1u << first) - 1;
    return _mm512_mask_mov_ps(other, (__mmask16)(below_last & ~below_first), x);
}

#else

struct Pairs {
    __m256i low, high;
};

static inline Pairs load_pairs(const bf16* p) {
    return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 16))};
}
static inline void store(bf16* p, Pairs pairs) {
    _mm256_storeu_si256((__m256i*)p, pairs.low);
    _mm256_storeu_si256((__m256i*)(p + 16), pairs.high);
}
static inline Pairs broadcast_pair(const bf16* p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return {_mm256_set1_epi32(pair), _mm256_set1_epi32(pair)};
}
static inline __m256 add_dot(__m256 sum, __m256i a, __m256i b) {
    const __m256i second = _mm256_set1_epi32((int)0xFFFF0000);
    const auto firsts = [](__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); };
    const auto seconds = [&](__m256i pairs) { return _mm256_castsi256_ps(_mm256_and_si256(pairs, second)); };
    return _mm256_fmadd_ps(seconds(a), seconds(b), _mm256_fmadd_ps(firsts(a), firsts(b), sum));
}
static inline Lanes add_dot(Lanes sum, Pairs a, Pairs b) {
    return {add_dot(sum.low, a.low, b.low), add_dot(sum.high, a.high, b.high)};
}

// x in the lanes from `first` up to `last`, `other` elsewhere; both may lie outside of 0..16.
static inline __m256 keep(__m256 x, int first, int last, __m256 other) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from_first = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(first - 1));
    const __m256i below_last = _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane);
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_and_si256(from_first, below_last)));
}
static inline Lanes keep(Lanes x, int first, int last, Lanes other) {
    return {keep(x.low, first, last, other.low), keep(x.high, first - 8, last - 8, other.high)};
}

#endif
