// The first thing a model does: rows of a table, times a scale, into the float32 residual stream.
#include "product.h"

struct EmbeddingArguments {
    const int64_t* token_ids;
    const Part* table;  // [vocabulary, size], as a product has it: a tied model's head is its embedding
    float* out;         // [T, size]
    int size;           // a multiple of GROUP
    float scale;
};

// The 32 codes that a group has of its output `n`.
static void take_codes(const uint32_t* lines, int bits, int n, uint32_t* quads) {
    if (bits == 8) {
        for (int i = 0; i < 8; ++i) quads[i] = lines[i * PANEL + n];
    } else {
        for (int i = 0; i < 4; ++i) {
            const uint32_t both = lines[i * PANEL + n];
            quads[2 * i] = both & 0x0f0f0f0f;
            quads[2 * i + 1] = both >> 4 & 0x0f0f0f0f;
        }
    }
}

static void embed_codes(const Part& table, const uint8_t* group, int n, Lanes scale, float* out) {
    alignas(32) uint32_t quads[8];
    take_codes((const uint32_t*)group, table.bits, n, quads);
    const uint16_t* halves = (const uint16_t*)(group + 64 * table.bits) + n;
    const Lanes step_size = broadcast(_cvtsh_ss(halves[0]) * table.unit);
    const Lanes minimum = broadcast(_cvtsh_ss(halves[PANEL]) * table.unit);
    store(out, fmadd(load((const uint8_t*)quads), step_size, minimum) * scale);
    store(out + LANES, fmadd(load((const uint8_t*)quads + LANES), step_size, minimum) * scale);
}

static void embed_floats(const uint8_t* group, int n, Lanes scale, float* out) {
    alignas(64) uint32_t pairs[LANES];
    for (int i = 0; i < LANES; ++i) pairs[i] = ((const uint32_t*)group)[i * PANEL + n];
    store(out, load((const bf16*)pairs) * scale);
    store(out + LANES, load((const bf16*)pairs + LANES) * scale);
}

extern "C" void embed(const EmbeddingArguments& a, const Step& step, Worker& worker) {
    const Part& table = *a.table;
    const int64_t panel_bytes = table.panel_bytes(a.size), group_bytes = panel_bytes / (a.size / GROUP);
    const Lanes scale = broadcast(a.scale);
    worker.deal(step.num_rows, 8, [&](int first, int last) {
        for (int t = first; t < last; ++t) {
            const uint8_t* group = (const uint8_t*)table.panels + a.token_ids[t] / PANEL * panel_bytes;
            const int n = (int)(a.token_ids[t] % PANEL);
            float* out = a.out + (int64_t)t * a.size;
            for (int k = 0; k < a.size; k += GROUP, group += group_bytes)
                table.bits == 16 ? embed_floats(group, n, scale, out + k) : embed_codes(table, group, n, scale, out + k);
        }
    });
}
