// AMX tiles of 16 rows of 64 bytes, all eight of them: what bfloat16 and int8 products use.
#pragma once
#ifdef __AMX_TILE__
#include <immintrin.h>

#include <cstdint>

// While one lives, this thread has the tiles configured.
class FullTiles {
  public:
    FullTiles() {
        struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } config;
        asm volatile("" ::"r"(&config) : "memory");  // GCC 12 takes the stores above for dead: it can't see who reads them
        _tile_loadconfig(&config);
    }
    ~FullTiles() { _tile_release(); }
    FullTiles(const FullTiles&) = delete;
    FullTiles& operator=(const FullTiles&) = delete;
};
#endif
