// A panel of codes times 8 to 16 rows of int8, on AMX tiles: the sums of product_quantised_vnni.h, bit for bit.
#pragma once
#include "product.h"

#ifdef __AMX_INT8__

// While one lives, this thread's tiles are: 0 to 3 sums of `rows` rows and 16 outputs; 4 and 5 take a group of the
// rows' codes, 6 and 7 one of the panel's.
class GroupTiles {
  public:
    explicit GroupTiles(int rows) {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, GROUP, GROUP, 64, 64};
            uint8_t rows[16] = {};
        } config;
        std::fill(config.rows, config.rows + 6, (uint8_t)rows);
        config.rows[6] = config.rows[7] = GROUP / 4;
        // GCC 12 takes the stores above for dead: it can't see who reads them.
        asm volatile("" ::"r"(&config) : "memory");
        _tile_loadconfig(&config);
    }
    ~GroupTiles() { _tile_release(); }
    GroupTiles(const GroupTiles&) = delete;
    GroupTiles& operator=(const GroupTiles&) = delete;
};

// A panel's groups: codes as bytes, and scales with minimums, each so many bytes apart.
struct UnpackedPanel {
    const uint8_t* codes;
    const uint8_t* scales;
    int codes_stride, scales_stride;

    // Codes that are bytes stay where they are, half-bytes are unpacked into `room`.
    UnpackedPanel(const uint8_t* panel, int bits, int num_groups, uint8_t* room) {
        codes_stride = GROUP * PANEL, scales_stride = 64 * (bits + 1), scales = panel + 64 * bits, codes = room;
        if (bits == 8) {
            codes = panel, codes_stride = scales_stride;
            return;
        }
        const __m512i low_half = _mm512_set1_epi8(15);
        for (int g = 0; g < num_groups; ++g, panel += 64)
            for (int i = 0; i < 4; ++i, panel += 64, room += 128) {
                _mm_prefetch((const char*)panel + PREFETCH, _MM_HINT_T0);
                const __m512i line = _mm512_loadu_si512(panel);
                _mm512_storeu_si512(room, _mm512_and_si512(line, low_half));
                _mm512_storeu_si512(room + 64, _mm512_and_si512(_mm512_srli_epi16(line, 4), low_half));
            }
    }
};

// A tile's sums take their way through memory, so they are computed two groups ahead of their use.
template <int ROWS>
static void multiply_tile(const UnpackedPanel& panel, QuantisedTile rows, int num_groups, Lanes* out) {
    constexpr int AHEAD = 2;
    alignas(64) int32_t dots[2 * AHEAD][ROWS][PANEL];
    Lanes results[ROWS];
    for (Lanes& result : results) result = broadcast(0.0f);
    const uint8_t* table = panel.scales;
    const auto add_scaled = [&](const int32_t (&dots)[ROWS][PANEL]) {
        const Lanes scale = load_half((const uint16_t*)table), minimum = load_half((const uint16_t*)table + PANEL);
        for (int m = 0; m < ROWS; ++m) {
            const Lanes dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots[m]));
            results[m] = fmadd(dot * broadcast(rows.scales[m]), scale, results[m]);
            results[m] = fmadd(minimum, broadcast(rows.sums[m]), results[m]);
        }
        table += panel.scales_stride, rows.scales += ROWS, rows.sums += ROWS;
    };
    const uint8_t* weights = panel.codes;
// Tiles have no names that a function could take.
#define MULTIPLY_GROUP(number, rows_tile, weights_tile)            \
    do {                                                           \
        _tile_zero(number);                                        \
        _tile_loadd(rows_tile, rows.codes, GROUP);                 \
        _tile_loadd(weights_tile, weights, 64);                    \
        _tile_dpbsud(number, rows_tile, weights_tile);             \
        _tile_stored(number, dots[number], PANEL * sizeof(int32_t)); \
        rows.codes += ROWS * GROUP, weights += panel.codes_stride; \
    } while (0)
    asm volatile("" ::: "memory");  // _tile_loadd does not say that it reads memory
    int g = 0;
    if (num_groups >= AHEAD) {
        MULTIPLY_GROUP(0, 4, 6);
        MULTIPLY_GROUP(1, 5, 7);
        for (g = AHEAD; g + 2 * AHEAD <= num_groups; g += 2 * AHEAD) {
            MULTIPLY_GROUP(2, 4, 6);
            MULTIPLY_GROUP(3, 5, 7);
            add_scaled(dots[0]);
            add_scaled(dots[1]);
            MULTIPLY_GROUP(0, 4, 6);
            MULTIPLY_GROUP(1, 5, 7);
            add_scaled(dots[2]);
            add_scaled(dots[3]);
        }
        add_scaled(dots[0]);
        add_scaled(dots[1]);
    }
    for (; g < num_groups; ++g) {
        MULTIPLY_GROUP(0, 4, 6);
        add_scaled(dots[0]);
    }
#undef MULTIPLY_GROUP
    std::copy(results, results + ROWS, out);
}

#endif
