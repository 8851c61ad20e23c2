// y = x W^T + bias for the rows of a step. First the rows are brought into the products' order, once; then blocks of
// outputs are dealt, generated tokens' and prompts' at the same time.
#include "product_roles.h"

struct LinearArguments {
    const bf16* x;      // [T, num_inputs]
    const Part* parts;  // stacked: each gives the next of y's columns
    const float* bias;  // [num_outputs + 15] or null
    void* y;            // [T, num_outputs]
    RowBuffers buffers;
    int num_parts, num_inputs, num_outputs;
    int float_result;  // else bfloat16
};

// Tiles of rows that stay in a core's cache while blocks pass by; fewer if there would be too little to deal.
static int tiles_at_once(int num_tiles, int num_inputs, int num_blocks, int num_workers) {
    constexpr int ROWS_BYTES = 3 << 19;
    const int in_cache = ROWS_BYTES / (Bf16Rows::ROW_TILE * num_inputs * (int)sizeof(bf16));
    const int fair = (int)((int64_t)num_tiles * num_blocks / (4 * num_workers));
    return std::max(2, std::min(in_cache, fair) / 2 * 2);
}

extern "C" void linear(const LinearArguments& a, const Step& step, Worker& worker) {
    const Blocks blocks{a.parts, a.num_parts};
    const int num_blocks = blocks.count();
    const RoleRows rows(step.num_generated, step.num_rows - step.num_generated, a.num_inputs, blocks, a.buffers);
    worker.deal(rows.num_tiles(), 1, [&](int tile, int) { rows.pack_tile(tile, a.x, a.num_inputs); });
    worker.barrier();

    const Output out{a.y, a.num_outputs, (bool)a.float_result, a.bias};
    const int pieces = 3 * worker.count;  // long enough for reading ahead
    worker.deal(rows.quantised.num_rows ? num_blocks : 0, std::max(1, num_blocks / pieces), [&](int first, int last) {
        uint8_t* room = (uint8_t*)worker.scratch(panel_room(a.num_inputs));
        for (int i = first, run; i < last; i += run) {
            const Block block = blocks[i];
            const Part& part = *block.part;
            run = std::min(last - i, part.num_blocks() - block.number);
            const int end = std::min(block.first_panel() + run * BLOCK_PANELS, part.num_panels());
            if (part.bits != 16)
                multiply_quantised(part, block.first_panel(), end, rows.quantised, out, block.column, room);
        }
    });
    const auto multiply = [&](const Bf16Rows& rows, const Output& out, bool also_codes) {
        const int at_once = tiles_at_once(rows.num_tiles(), a.num_inputs, num_blocks, worker.count);
        const int num_chunks = (rows.num_tiles() + at_once - 1) / at_once;
        worker.deal(num_chunks * num_blocks, 1, [&](int item, int) {
            const Block block = blocks[item % num_blocks];
            const int first = item / num_blocks * at_once;
            if (also_codes || block.part->bits == 16)
                multiply_block(block, rows, first, std::min(first + at_once, rows.num_tiles()), out, worker);
        });
    };
    multiply(rows.generated, out, false);
    multiply(rows.prompt, out.from_row(step.num_generated), true);
}
