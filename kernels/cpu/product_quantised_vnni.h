// A panel of codes times rows of int8, by AVX-512 VNNI: four inputs of 16 outputs in one instruction.
#pragma once
#include "product.h"

#ifdef __AVX512VNNI__

// Bytes ahead. The hardware's own prefetch ends with each page: without this one, reading is a third slower.
static constexpr int PREFETCH = 4096;

// Results of ROWS rows of one tile for a panel.
template <int BITS, int ROWS>
static void multiply_panel(const uint8_t* group, QuantisedTile rows, int num_groups, Lanes* out) {
    constexpr int LINES = BITS;  // of 64 bytes, a group
    const __m512i low_half = _mm512_set1_epi8(15);
    Lanes results[ROWS];
    for (Lanes& result : results) result = broadcast(0.0f);
    for (int g = 0; g < num_groups; ++g) {
        __m512i dots[ROWS];
        for (__m512i& dot : dots) dot = _mm512_setzero_si512();
        const auto add = [&](__m512i weights, int quad) {
            for (int m = 0; m < ROWS; ++m) {
                int32_t inputs;
                memcpy(&inputs, rows.codes + m * GROUP + 4 * quad, sizeof inputs);
                dots[m] = _mm512_dpbusd_epi32(dots[m], weights, _mm512_set1_epi32(inputs));
            }
        };
        for (int i = 0; i < LINES; ++i, group += 64) {
            _mm_prefetch((const char*)group + PREFETCH, _MM_HINT_T0);
            const __m512i line = _mm512_loadu_si512(group);
            if (BITS == 4) {
                add(_mm512_and_si512(line, low_half), 2 * i);
                add(_mm512_and_si512(_mm512_srli_epi16(line, 4), low_half), 2 * i + 1);
            } else {
                add(line, i);
            }
        }
        _mm_prefetch((const char*)group + PREFETCH, _MM_HINT_T0);
        const Lanes scale = load_half((const uint16_t*)group), minimum = load_half((const uint16_t*)group + PANEL);
        group += 64;
        for (int m = 0; m < ROWS; ++m) {
            results[m] = fmadd(_mm512_cvtepi32_ps(dots[m]) * broadcast(rows.scales[m]), scale, results[m]);
            results[m] = fmadd(minimum, broadcast(rows.sums[m]), results[m]);
        }
        rows.codes += ROWS * GROUP, rows.scales += ROWS, rows.sums += ROWS;
    }
    std::copy(results, results + ROWS, out);
}

#endif
