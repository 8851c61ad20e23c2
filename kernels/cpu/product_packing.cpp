// Weights as a file has them -> panels. Dealt like any kernel, panel by panel; what rows a step has is all the same.
#include "product.h"

// float16 [num_outputs, num_inputs / GROUP], which may lie between a file's codes: strides in elements.
struct GroupTable {
    const uint16_t* first;
    int64_t row_stride, group_stride;

    uint16_t at(int64_t output, int64_t group) const { return first[output * row_stride + group * group_stride]; }
};

struct PackCodesArguments {
    const uint8_t* codes;  // [num_outputs, bytes of a row]
    const CodeLayout* layout;
    GroupTable scales, minimums;
    uint8_t* panels;
    int num_outputs, num_inputs, bits;
};

struct CopyCodesArguments {
    const uint8_t* panels;  // packed from codes
    bf16* copy;             // as 16-bit panels have it
    int num_outputs, num_inputs, bits;
    float unit;
};

struct PackFloatsArguments {
    const bf16* weights;  // [num_outputs, num_inputs]
    bf16* panels;
    int num_outputs, num_inputs;
};

// 32 codes of one output to its place in eight lines, or in four that two codes share.
static void put_codes(__m256i codes, int bits, uint32_t* lines) {
    alignas(32) uint32_t quads[8];
    if (bits == 8) {
        _mm256_store_si256((__m256i*)quads, codes);
        for (int i = 0; i < 8; ++i) lines[i * PANEL] = quads[i];
    } else {
        _mm256_store_si256((__m256i*)quads, _mm256_or_si256(codes, _mm256_srli_epi64(codes, 32 - 4)));
        for (int i = 0; i < 4; ++i) lines[i * PANEL] = quads[2 * i];
    }
}

static void pack_panel(const PackCodesArguments& a, const Part& part, int panel, uint8_t* to) {
    const CodeLayout& layout = *a.layout;
    const int groups = a.num_inputs / GROUP, first = panel * PANEL, columns = std::min(PANEL, a.num_outputs - first);
    const int64_t row_bytes = layout.row_bytes(a.num_inputs);
    if (columns < PANEL) std::fill(to, to + part.panel_bytes(a.num_inputs), 0);
    for (int g = 0; g < groups; ++g, to += part.group_bytes()) {
        const uint8_t* block = a.codes + first * row_bytes + (int64_t)(g / layout.block_groups) * layout.block_bytes;
        const int group_of_block = g % layout.block_groups;
        uint16_t* table = (uint16_t*)(to + 64 * a.bits);
        for (int n = 0; n < columns; ++n, block += row_bytes) {
            put_codes(layout.codes(block, group_of_block), a.bits, (uint32_t*)to + n);
            table[n] = a.scales.at(first + n, g);
            table[n + PANEL] = a.minimums.at(first + n, g);
        }
    }
}

extern "C" {
void pack_codes(const PackCodesArguments& a, const Step&, Worker& worker) {
    const Part form{nullptr, nullptr, a.num_outputs, a.bits, 1.0f};
    worker.deal(form.num_panels(), 1, [&](int panel, int) {
        pack_panel(a, form, panel, a.panels + panel * form.panel_bytes(a.num_inputs));
    });
}

void copy_codes(const CopyCodesArguments& a, const Step&, Worker& worker) {
    const Part part{a.panels, nullptr, a.num_outputs, a.bits, a.unit};
    worker.deal(part.num_panels(), 1, [&](int panel, int) {
        dequantise_panel(part, panel, a.num_inputs, a.copy + (int64_t)panel * a.num_inputs * PANEL);
    });
}

// Panels come in whole blocks: the last may have no outputs at all.
void pack_floats(const PackFloatsArguments& a, const Step&, Worker& worker) {
    const Part form{nullptr, nullptr, a.num_outputs, 16, 1.0f};
    worker.deal(form.num_blocks() * BLOCK_PANELS, 1, [&](int panel, int) {
        const int64_t bytes = form.panel_bytes(a.num_inputs);
        bf16* to = a.panels + panel * bytes / sizeof(bf16);
        std::fill(to, to + bytes / sizeof(bf16), 0);
        for (int n = 0; n < std::min(PANEL, a.num_outputs - panel * PANEL); ++n) {
            const bf16* row = a.weights + (int64_t)(panel * PANEL + n) * a.num_inputs;
            for (int k = 0; k < a.num_inputs; ++k) to[(k / 2 * PANEL + n) * 2 + k % 2] = row[k];
        }
    });
}
}
