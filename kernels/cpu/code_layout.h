// How a file packs the codes of a quantised matrix: kernels/code_layout.py, in registers.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

static constexpr int GROUP = 32;  // inputs that share a scale and a minimum

struct CodeLayout {
    int block_bytes, block_groups, first, run, flipped, fifth;

    int64_t row_bytes(int num_inputs) const { return (int64_t)num_inputs / GROUP / block_groups * block_bytes; }

    // The 32 codes of the block's group `g`, a byte each.
    __m256i codes(const uint8_t* block, int g) const {
        const uint8_t* from = block + first;
        if (run == 0) return _mm256_xor_si256(load(from + GROUP * g), _mm256_set1_epi8((char)flipped));
        const __m256i halves = _mm256_and_si256(
            run == GROUP ? _mm256_srl_epi16(load(from + g / 2 * GROUP), _mm_cvtsi32_si128(g % 2 * 4)) : both_halves(from),
            _mm256_set1_epi8(15));
        return fifth < 0 ? halves : _mm256_or_si256(halves, block_groups == 1 ? spread(block) : of_group(block, g));
    }

  private:
    static __m256i load(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }

    // 16 bytes: the low halves of all, then the high halves.
    static __m256i both_halves(const uint8_t* p) {
        const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
        return _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    }

    // 32 bits, one for each code: 16 or 0.
    __m256i spread(const uint8_t* block) const {
        int32_t bits;
        memcpy(&bits, block + fifth, sizeof bits);
        const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
        const __m256i bit_of = _mm256_set1_epi64x((int64_t)0x8040201008040201);
        const __m256i mine = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of), bit_of);
        return _mm256_and_si256(_mm256_cmpeq_epi8(mine, bit_of), _mm256_set1_epi8(16));
    }

    // Bit g of 32 bytes: 16 or 0.
    __m256i of_group(const uint8_t* block, int g) const {
        const __m256i bits = _mm256_srl_epi16(load(block + fifth), _mm_cvtsi32_si128(g));
        return _mm256_slli_epi16(_mm256_and_si256(bits, _mm256_set1_epi8(1)), 4);
    }
};
