// Sixteen lanes at a time: bfloat16 in memory, float32 in registers. Needs AVX-512 F, BW, DQ, VL and BF16.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

using bf16 = uint16_t;

static inline __m512 load(const bf16* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}

static inline void store(bf16* p, __m512 v) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(v)); }

// A pair of neighbouring bfloat16 in every lane: one operand of vdpbf16ps.
static inline __m512bh broadcast_pair(const bf16* p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

static inline __m512bh load_pairs(const bf16* p) { return (__m512bh)_mm512_loadu_si512(p); }

// As above, with 0 in the place of each pair's second.
static inline __m512bh load_first_of_pairs(const bf16* p) {
    return (__m512bh)_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(0xFFFF));
}

// e^x for x <= 88, as 2^n * 2^r with a polynomial of degree 5 for 2^r, |r| <= 1/2; relative error below 3e-6.
static inline __m512 exp_ps(__m512 x) {
    const __m512 t = _mm512_mul_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.0f)), _mm512_set1_ps(1.44269504f));
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(t, n);
    __m512 p = _mm512_set1_ps(1.3333558e-3f);
    for (const float c : {9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f})
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    return _mm512_scalef_ps(p, n);
}
