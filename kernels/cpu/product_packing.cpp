// Weights as a file has them -> panels. Dealt like any kernel; a step's rows are panels here.
#include "product.h"

struct PackCodesArguments {
    const uint8_t* codes;      // [num_outputs, num_inputs]
    const uint16_t* scales;    // float16 [num_outputs, num_inputs / GROUP]
    const uint16_t* minimums;  // the same
    uint8_t* panels;
    int num_outputs, num_inputs, bits;
};

struct PackFloatsArguments {
    const bf16* weights;  // [num_outputs, num_inputs]
    bf16* panels;
    int num_outputs, num_inputs;
};

struct CopyCodesArguments {
    const Part* part;
    bf16* copy;
    int num_inputs;
};

static uint32_t four_codes(const uint8_t* p) {
    uint32_t codes;
    memcpy(&codes, p, sizeof codes);
    return codes;
}

extern "C" {
void pack_codes(const PackCodesArguments& a, const Step& step, Worker& worker) {
    const Part form{nullptr, nullptr, a.num_outputs, a.bits, 1.0f};
    const int groups = a.num_inputs / GROUP;
    worker.deal(step.num_rows, 1, [&](int panel, int) {
        const int columns = std::min(PANEL, a.num_outputs - panel * PANEL);
        uint8_t* to = a.panels + panel * form.panel_bytes(a.num_inputs);
        std::fill(to, to + form.panel_bytes(a.num_inputs), 0);
        for (int g = 0; g < groups; ++g, to += form.group_bytes())
            for (int n = 0; n < columns; ++n) {
                const int64_t group = (int64_t)(panel * PANEL + n) * groups + g;
                const uint8_t* codes = a.codes + group * GROUP;
                uint32_t* lines = (uint32_t*)to + n;
                for (int i = 0; i < a.bits; ++i)
                    lines[i * PANEL] = a.bits == 8 ? four_codes(codes + 4 * i)
                                                   : four_codes(codes + 8 * i) | four_codes(codes + 8 * i + 4) << 4;
                uint16_t* table = (uint16_t*)(to + 64 * a.bits) + n;
                table[0] = a.scales[group];
                table[PANEL] = a.minimums[group];
            }
    });
}

// Panels come in whole blocks: the last may have no outputs at all.
void pack_floats(const PackFloatsArguments& a, const Step& step, Worker& worker) {
    const Part form{nullptr, nullptr, a.num_outputs, 16, 1.0f};
    worker.deal(step.num_rows, 1, [&](int panel, int) {
        const int64_t bytes = form.panel_bytes(a.num_inputs);
        bf16* to = a.panels + panel * bytes / sizeof(bf16);
        std::fill(to, to + bytes / sizeof(bf16), 0);
        for (int n = 0; n < std::min(PANEL, a.num_outputs - panel * PANEL); ++n) {
            const bf16* row = a.weights + (int64_t)(panel * PANEL + n) * a.num_inputs;
            for (int k = 0; k < a.num_inputs; ++k) to[(k / 2 * PANEL + n) * 2 + k % 2] = row[k];
        }
    });
}

// Packed codes -> their copy.
void copy_codes(const CopyCodesArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, 1, [&](int panel, int) {
        dequantise_panel(*a.part, panel, a.num_inputs, a.copy + (int64_t)panel * a.num_inputs * PANEL);
    });
}
}
