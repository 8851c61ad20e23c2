// Codes -> bfloat16, a panel at a time, while a block's rows wait: it costs a fraction of reading bfloat16 from memory.
#include "product.h"

#ifdef __AVX512BF16__

// byte `i` (0 to 3) of each lane's four
template <int i>
static Lanes byte_of(__m512i quads) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(quads, 8 * i), _mm512_set1_epi32(255)));
}

static void store_pairs(bf16* p, Lanes first, Lanes second) {
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);  // 16 firsts, then 16 seconds
    alignas(64) static constexpr uint16_t interleaved[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,  //
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(interleaved), both));
}

using Bytes = __m512i;
static Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
static Bytes lower_halves(Bytes v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
static Bytes upper_halves(Bytes v) { return lower_halves(_mm512_srli_epi16(v, 4)); }

#else

struct Bytes {
    __m256i low, high;
};
static Bytes load_bytes(const uint8_t* p) {
    return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1)};
}
static Bytes lower_halves(Bytes v) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(v.low, mask), _mm256_and_si256(v.high, mask)};
}
static Bytes upper_halves(Bytes v) { return lower_halves({_mm256_srli_epi16(v.low, 4), _mm256_srli_epi16(v.high, 4)}); }

template <int i>
static Lanes byte_of(Bytes quads) {
    const auto half = [](__m256i v) {
        return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(v, 8 * i), _mm256_set1_epi32(255)));
    };
    return {half(quads.low), half(quads.high)};
}

static void store_pairs(bf16* p, Lanes first, Lanes second) {
    const auto half = [](__m256 a, __m256 b) {
        return _mm256_or_si256(rounded_to_bf16(a), _mm256_slli_epi32(rounded_to_bf16(b), 16));
    };
    _mm256_storeu_si256((__m256i*)p, half(first.low, second.low));
    _mm256_storeu_si256((__m256i*)p + 1, half(first.high, second.high));
}

#endif

void dequantise_panel(const Part& part, int panel, int num_inputs, bf16* weights) {
    const uint8_t* group = part.panels + panel * part.panel_bytes(num_inputs);
    const Lanes unit = broadcast(part.unit);
    for (int k = 0; k < num_inputs; k += GROUP) {
        const uint16_t* table = (const uint16_t*)(group + 64 * part.bits);
        const Lanes scale = load_half(table) * unit, minimum = load_half(table + PANEL) * unit;
        const auto put = [&](Bytes quads) {  // four inputs of each output
            store_pairs(weights, fmadd(byte_of<0>(quads), scale, minimum), fmadd(byte_of<1>(quads), scale, minimum));
            weights += 2 * PANEL;
            store_pairs(weights, fmadd(byte_of<2>(quads), scale, minimum), fmadd(byte_of<3>(quads), scale, minimum));
            weights += 2 * PANEL;
        };
        for (int i = 0; i < part.bits; ++i) {
            const Bytes line = load_bytes(group + 64 * i);
            if (part.bits == 4) {
                put(lower_halves(line));
                put(upper_halves(line));
            } else {
                put(line);
            }
        }
        group += part.group_bytes();
    }
}
