// Sixteen float32 lanes, whatever the instruction set: one register with AVX-512, two with AVX2. bfloat16 in memory.
// Compiled once for each instruction set (build.py); there is no choice at run time here.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

using bf16 = uint16_t;

static constexpr int LANES = 16;

#ifdef __AVX512BF16__

using Lanes = __m512;  // + - * / are the compiler's own

static inline Lanes broadcast(float value) { return _mm512_set1_ps(value); }
static inline Lanes load(const float* p) { return _mm512_loadu_ps(p); }
static inline Lanes load(const bf16* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
static inline Lanes load_half(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
static inline Lanes load(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
static inline void store(float* p, Lanes v) { _mm512_storeu_ps(p, v); }
static inline void store(bf16* p, Lanes v) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(v)); }

static inline Lanes fmadd(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
static inline Lanes maximum(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
static inline Lanes minimum(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
static inline Lanes absolute(Lanes a) { return _mm512_abs_ps(a); }
static inline Lanes nearest(Lanes a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline Lanes times_power_of_two(Lanes a, Lanes n) { return _mm512_scalef_ps(a, n); }
static inline float sum_of(Lanes a) { return _mm512_reduce_add_ps(a); }
static inline float maximum_of(Lanes a) { return _mm512_reduce_max_ps(a); }
// A bit for each lane, the first in the lowest; NaN is less than nothing.
static inline unsigned less(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
// x where a >= b, else 0.
static inline Lanes where_at_least(Lanes a, Lanes b, Lanes x) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), x);
}

// A pair of neighbouring bfloat16 in every lane: one operand of vdpbf16ps.
static inline __m512bh broadcast_pair(const bf16* p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}
static inline __m512bh load_pairs(const bf16* p) { return (__m512bh)_mm512_loadu_si512(p); }

#else

struct Lanes {
    __m256 low, high;
};

static inline Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
static inline Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
static inline Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
static inline Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }

static inline Lanes broadcast(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
static inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline __m256 load_eight(const bf16* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
static inline Lanes load(const bf16* p) { return {load_eight(p), load_eight(p + 8)}; }
static inline Lanes load_half(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
static inline __m256 load_eight(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
static inline Lanes load(const uint8_t* p) { return {load_eight(p), load_eight(p + 8)}; }
static inline void store(float* p, Lanes v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
}
// Round to nearest, ties to even; NaN stays NaN.
static inline __m256i rounded_to_bf16(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC00000), nan), 16);
}
static inline void store(bf16* p, Lanes v) {
    const __m256i packed = _mm256_packus_epi32(rounded_to_bf16(v.low), rounded_to_bf16(v.high));
    _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
}

static inline Lanes fmadd(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
static inline Lanes maximum(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
static inline Lanes minimum(Lanes a, Lanes b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
static inline Lanes absolute(Lanes a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
static inline Lanes nearest(Lanes a) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, mode), _mm256_round_ps(a.high, mode)};
}
static inline __m256 power_of_two(__m256 n) {  // |n| <= 126
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
static inline Lanes times_power_of_two(Lanes a, Lanes n) {
    return {_mm256_mul_ps(a.low, power_of_two(n.low)), _mm256_mul_ps(a.high, power_of_two(n.high))};
}
static inline float sum_of(Lanes a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float maximum_of(Lanes a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
static inline unsigned less(Lanes a, Lanes b) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ));
    return low | _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)) << 8;
}
static inline Lanes where_at_least(Lanes a, Lanes b, Lanes x) {
    return {_mm256_and_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ), x.low),
            _mm256_and_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ), x.high)};
}

#endif

// e^x, x clamped to [-87, 87], as 2^n * 2^r with a polynomial of degree 5 for 2^r, |r| <= 1/2; relative error below 3e-6.
static inline Lanes exponential(Lanes x) {
    // Of a NaN and a number, maximum and minimum take the second: NaN stays NaN.
    const Lanes t = minimum(broadcast(87.0f), maximum(broadcast(-87.0f), x)) * broadcast(1.44269504f);
    const Lanes n = nearest(t);
    const Lanes r = t - n;
    Lanes p = fmadd(broadcast(1.3333558e-3f), r, broadcast(9.6181291e-3f));
    p = fmadd(p, r, broadcast(5.5504109e-2f));
    p = fmadd(p, r, broadcast(2.4022651e-1f));
    p = fmadd(p, r, broadcast(6.9314718e-1f));
    return times_power_of_two(fmadd(p, r, broadcast(1.0f)), n);
}

// Absolute error below 3e-6.
static inline Lanes hyperbolic_tangent(Lanes x) {
    return broadcast(1.0f) - broadcast(2.0f) / (exponential(x + x) + broadcast(1.0f));
}
