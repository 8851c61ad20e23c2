// A panel of codes times rows of int8, by AVX2: the sums of product_quantised_vnni.h, bit for bit.
#pragma once
#include "product.h"

#ifndef __AVX512VNNI__

// 8 outputs of the panel, so that 4 rows find room in 16 registers: the first half or the second.
//
// Sums of 16 bits: of half-byte codes they stay below 8 * 2 * 15 * 127 < 2^15 for a whole group. So 8-bit codes go in
// halves.
template <int BITS, int ROWS>
static void multiply_half_panel(int half, const uint8_t* group, QuantisedTile rows, int num_groups, __m256* results) {
    constexpr int LINES = BITS;  // of 64 bytes, a group
    const __m256i low_half = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for (int m = 0; m < ROWS; ++m) results[m] = _mm256_setzero_ps();
    for (int g = 0; g < num_groups; ++g) {
        __m256i low[ROWS], high[ROWS];
        for (int m = 0; m < ROWS; ++m) low[m] = high[m] = _mm256_setzero_si256();
        const auto add = [&](__m256i* to, __m256i weights, int quad) {
            for (int m = 0; m < ROWS; ++m) {
                int32_t inputs;
                memcpy(&inputs, rows.codes + m * GROUP + 4 * quad, sizeof inputs);
                to[m] = _mm256_add_epi16(to[m], _mm256_maddubs_epi16(weights, _mm256_set1_epi32(inputs)));
            }
        };
        for (int i = 0; i < LINES; ++i, group += 64) {
            const __m256i line = _mm256_loadu_si256((const __m256i*)group + half);
            const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(line, 4), low_half);
            add(low, _mm256_and_si256(line, low_half), BITS == 4 ? 2 * i : i);
            add(BITS == 4 ? low : high, upper, BITS == 4 ? 2 * i + 1 : i);
        }
        const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)group + half));
        const __m256 minimum = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)group + 2 + half));
        group += 64;
        for (int m = 0; m < ROWS; ++m) {
            __m256i dot = _mm256_madd_epi16(low[m], ones);
            if (BITS == 8) dot = _mm256_add_epi32(dot, _mm256_slli_epi32(_mm256_madd_epi16(high[m], ones), 4));
            const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(rows.scales[m]));
            results[m] = _mm256_fmadd_ps(scaled, scale, results[m]);
            results[m] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(rows.sums[m]), results[m]);
        }
        rows.codes += ROWS * GROUP, rows.scales += ROWS, rows.sums += ROWS;
    }
}

template <int BITS, int ROWS>
static void multiply_panel(const uint8_t* group, QuantisedTile rows, int num_groups, Lanes* out) {
    __m256 low[ROWS], high[ROWS];
    multiply_half_panel<BITS, ROWS>(0, group, rows, num_groups, low);
    multiply_half_panel<BITS, ROWS>(1, group, rows, num_groups, high);
    for (int m = 0; m < ROWS; ++m) out[m] = {low[m], high[m]};
}

#endif
