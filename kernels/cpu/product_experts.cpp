// A mixture of experts: each token goes through the few experts that score highest for it. Rows are brought together by
// expert, within an expert generated tokens' first; what a row gives does not depend on who its neighbours are.
#include <bit>
#include <vector>

#include "activation.h"
#include "product_roles.h"

// The rows of one expert: places [first, first + num_generated + num_prompt) of all that are sorted by expert.
struct ExpertRows {
    int32_t expert, first, num_generated, num_prompt;
    int count() const { return num_generated + num_prompt; }
};

struct ExpertsArguments {
    const bf16* x;        // [T, size]
    const bf16* scores;   // [T, num_experts]
    const Part* gate_up;  // [num_experts][2]: [inner, size] each
    const Part* down;     // [num_experts]: [size, inner]
    bf16* y;              // [T, size]
    int32_t* chosen;      // [T, top_k] experts, the highest share first
    float* shares;        // [T, top_k]
    int32_t* places;      // [T, top_k]: where it lies, sorted by expert
    int32_t* sorted_rows;  // [T * top_k]: whose row lies there
    ExpertRows* groups;   // [num_experts] at most; of experts with rows
    int32_t* num_groups;
    RowBuffers x_buffers, hidden_buffers;  // for T * top_k rows in num_experts groups
    bf16* gates;                           // [T * top_k, 2 inner]
    bf16* hidden;                          // [T * top_k, inner]
    float* results;                        // [T * top_k, size]
    int num_experts, top_k, size, inner;   // size, inner: multiples of 16
    int normalise;                         // shares sum to 1
    int gelu;                              // else SiLU
};

namespace {

// Softmax over all scores, of which the top_k largest count; of equals, the first.
void choose(const ExpertsArguments& a, int row, float* shares) {
    const bf16* scores = a.scores + (int64_t)row * a.num_experts;
    const auto score = [&](int expert) { return std::bit_cast<float>((uint32_t)scores[expert] << 16); };
    float largest = score(0), sum = 0.0f, chosen_sum = 0.0f;
    for (int e = 1; e < a.num_experts; ++e) largest = std::max(largest, score(e));
    for (int e = 0; e < a.num_experts; ++e) sum += shares[e] = std::exp(score(e) - largest);
    int32_t* chosen = a.chosen + (int64_t)row * a.top_k;
    for (int i = 0; i < a.top_k; ++i) {
        int best = -1;
        for (int e = 0; e < a.num_experts; ++e)
            if (std::find(chosen, chosen + i, e) == chosen + i && (best < 0 || shares[e] > shares[best])) best = e;
        chosen[i] = best;
        chosen_sum += shares[best];
    }
    for (int i = 0; i < a.top_k; ++i)
        a.shares[(int64_t)row * a.top_k + i] = shares[chosen[i]] / (a.normalise ? chosen_sum : sum);
}

// All (row, choice) by expert and, as rows are, by role.
void sort_by_expert(const ExpertsArguments& a, const Step& step, int32_t* next_place) {
    const int generated = step.num_generated * a.top_k, all = step.num_rows * a.top_k;
    std::vector<ExpertRows> experts(a.num_experts);
    for (int i = 0; i < all; ++i) {
        ExpertRows& rows = experts[a.chosen[i]];
        ++(i < generated ? rows.num_generated : rows.num_prompt);
    }
    int first = 0, num_groups = 0;
    for (int e = 0; e < a.num_experts; ++e) {
        next_place[e] = first;
        if (experts[e].count()) a.groups[num_groups++] = {e, first, experts[e].num_generated, experts[e].num_prompt};
        first += experts[e].count();
    }
    for (int i = 0; i < all; ++i) {
        a.places[i] = next_place[a.chosen[i]]++;
        a.sorted_rows[a.places[i]] = i / a.top_k;
    }
    *a.num_groups = num_groups;
}

}  // namespace

extern "C" void experts(const ExpertsArguments& a, const Step& step, Worker& worker) {
    const auto gate_up_of = [&](int group) { return Blocks{a.gate_up + 2 * a.groups[group].expert, 2}; };
    const auto down_of = [&](int group) { return Blocks{a.down + a.groups[group].expert, 1}; };
    const auto rows_of = [&](int group, const Blocks& blocks, int num_inputs, const RowBuffers& buffers) {
        const ExpertRows& rows = a.groups[group];
        const RowBuffers room = buffers.from(rows.first, group, num_inputs);
        return RoleRows(rows.num_generated, rows.num_prompt, num_inputs, blocks, room);
    };
    const auto pack = [&](const RoleRows& rows, const bf16* from, const int32_t* index, int stride) {
        for (int tile = 0; tile < rows.num_tiles(); ++tile) rows.pack_tile(tile, from, stride, index);
    };

    worker.deal(step.num_rows, 8, [&](int first, int last) {
        float* shares = (float*)worker.scratch(a.num_experts * sizeof(float));
        for (int row = first; row < last; ++row) choose(a, row, shares);
    });
    worker.barrier();
    worker.deal(1, 1, [&](int, int) {
        sort_by_expert(a, step, (int32_t*)worker.scratch(a.num_experts * sizeof(int32_t)));
    });
    worker.barrier();
    const int num_groups = *a.num_groups;
    worker.deal(num_groups, 1, [&](int group, int) {
        const int32_t* index = a.sorted_rows + a.groups[group].first;
        pack(rows_of(group, gate_up_of(group), a.size, a.x_buffers), a.x, index, a.size);
    });
    worker.barrier();
    const int gate_up_blocks = 2 * ((a.inner + BLOCK_OUTPUTS - 1) / BLOCK_OUTPUTS);
    worker.deal(num_groups * gate_up_blocks, 1, [&](int item, int) {
        const int group = item / gate_up_blocks;
        const Blocks blocks = gate_up_of(group);
        const Output out{a.gates + (int64_t)a.groups[group].first * 2 * a.inner, 2 * a.inner, false, nullptr};
        multiply_block(blocks[item % gate_up_blocks], rows_of(group, blocks, a.size, a.x_buffers), out, worker);
    });
    worker.barrier();
    worker.deal(num_groups, 1, [&](int group, int) {
        const ExpertRows& rows = a.groups[group];
        bf16* hidden = a.hidden + (int64_t)rows.first * a.inner;
        for (int m = 0; m < rows.count(); ++m) {
            const bf16* gates = a.gates + (int64_t)(rows.first + m) * 2 * a.inner;
            for (int i = 0; i < a.inner; i += LANES) {
                const Lanes gate = load(gates + i);
                const Lanes activated = a.gelu ? gelu_tanh(gate) : silu(gate);
                store(hidden + (int64_t)m * a.inner + i, activated * load(gates + a.inner + i));
            }
        }
        pack(rows_of(group, down_of(group), a.inner, a.hidden_buffers), hidden, nullptr, a.inner);
    });
    worker.barrier();
    const int down_blocks = (a.size + BLOCK_OUTPUTS - 1) / BLOCK_OUTPUTS;
    worker.deal(num_groups * down_blocks, 1, [&](int item, int) {
        const int group = item / down_blocks;
        const Blocks blocks = down_of(group);
        const Output out{a.results + (int64_t)a.groups[group].first * a.size, a.size, true, nullptr};
        multiply_block(blocks[item % down_blocks], rows_of(group, blocks, a.inner, a.hidden_buffers), out, worker);
    });
    worker.barrier();
    worker.deal(step.num_rows, 8, [&](int first, int last) {
        for (int row = first; row < last; ++row)
            for (int i = 0; i < a.size; i += LANES) {
                Lanes sum = broadcast(0.0f);
                for (int64_t choice = (int64_t)row * a.top_k; choice < (int64_t)(row + 1) * a.top_k; ++choice) {
                    const float* result = a.results + (int64_t)a.places[choice] * a.size;
                    sum = fmadd(broadcast(a.shares[choice]), load(result + i), sum);
                }
                store(a.y + (int64_t)row * a.size + i, sum);
            }
    });
}
