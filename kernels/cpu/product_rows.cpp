// Rows of activations in the order their products want: quantised for generated tokens, tiles of bfloat16 for prompts.
#include "product.h"

static int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// Tiles of about equal size: the last one's missing rows are computed, too, and thrown away.
static int tile_rows_for(int num_rows) {
    constexpr int MOST_ROWS = QuantisedRows::MOST_ROWS;
    if (num_rows <= QuantisedRows::VECTOR_ROWS) return std::max(num_rows, 1);
    const int tiles = (num_rows + MOST_ROWS - 1) / MOST_ROWS;
    return round_up((num_rows + tiles - 1) / tiles, QuantisedRows::MULTIPLE);
}

QuantisedRows::QuantisedRows(int num_rows, int num_inputs, int8_t* codes, float* scales, float* sums)
    : num_rows(num_rows),
      num_groups(num_inputs / GROUP),
      tile_rows(tile_rows_for(num_rows)),
      codes(codes),
      scales(scales),
      sums(sums) {}

#ifdef __AVX512F__
static void store_codes(int8_t* p, Lanes v) {
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
#else
static void store_codes(int8_t* p, Lanes v) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.low), _mm256_cvtps_epi32(v.high));
    const __m256i ordered = _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0));
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128((__m128i*)p, bytes);
}
#endif

// x [GROUP] -> its codes, and their scale and sum. An x that is no number makes the sum none, and so every result.
static void quantise_group(const bf16* x, int8_t* codes, float& scale, float& sum) {
    constexpr float NOTHING = 1e-30f;  // below, 127 / largest may overflow
    const Lanes first = load(x), second = load(x + LANES);
    const float largest = maximum_of(maximum(absolute(first), absolute(second)));
    const Lanes inverse = broadcast(largest < NOTHING ? 0.0f : 127.0f / largest);
    const Lanes a = nearest(first * inverse), b = nearest(second * inverse);
    store_codes(codes, a);
    store_codes(codes + LANES, b);
    scale = largest * (1.0f / 127.0f);
    sum = scale * sum_of(a + b);  // of integers: exact
}

void QuantisedRows::pack_tile(int tile, const bf16* x, int64_t stride, const int32_t* index) const {
    const int first = tile * tile_rows, last = std::min(num_rows, first + tile_rows);
    for (int row = first; row < last; ++row) {
        const bf16* from = x + (index ? index[row] : row) * stride;
        for (int g = 0; g < num_groups; ++g) {
            const int64_t at = ((int64_t)tile * num_groups + g) * tile_rows + row - first;
            quantise_group(from + g * GROUP, codes + at * GROUP, scales[at], sums[at]);
        }
    }
}

void Bf16Rows::pack_tile(int tile, const bf16* x, int64_t stride, const int32_t* index) const {
    const int first = tile * ROW_TILE;
    bf16* to = tiles + (int64_t)first * padded_inputs();
    for (int row = first; row < first + ROW_TILE; ++row)
        for (int k = 0; k < num_inputs; k += GROUP) {
#ifdef __AMX_BF16__
            bf16* line = to + (int64_t)k * ROW_TILE + (row - first) * GROUP;
#else
            bf16* line = to + (int64_t)(row - first) * padded_inputs() + k;
#endif
            if (row >= num_rows) {
                std::fill(line, line + GROUP, 0);
                continue;
            }
            const bf16* from = x + (index ? index[row] : row) * stride + k;
            const int count = std::min(GROUP, num_inputs - k);
            if (count == GROUP) {
                memcpy(line, from, GROUP * sizeof(bf16));  // of a size that the compiler knows: two moves
                continue;
            }
            std::copy(from, from + count, line);
            std::fill(line + count, line + GROUP, 0);
        }
}
