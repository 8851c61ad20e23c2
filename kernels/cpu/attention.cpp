// Grouped-query attention over the paged cache (Kwon et al. 2023, arXiv:2309.06180). A generated token's query heads of
// one KV head are a tile of their own; of a prompt, up to 16 tokens of one query head are. What a query gets depends on
// its own position and role alone: keys are walked in ranges with fixed borders, and those that a query doesn't see
// don't change a bit.
#include "attention_tile.h"
#include "attention_softmax.h"

namespace {

constexpr int MAX_PARTS = 8, MIN_PART_RANGES = 2;
constexpr int MAX_SHARED_ROWS = 8;
constexpr int MAX_GROUP = 16;  // query heads of a KV head

// A generated token's keys are walked in parts, each with a softmax of its own; these are merged in order. While there
// are few such tokens, workers share the parts of one. How a token's keys are cut depends on its position only.
struct Parts {
    int first_key, num_keys, keys_each, count;

    Parts(const AttentionRule& rule, int position) : first_key(rule.first_key(position)), num_keys(position + 1) {
        const int num_ranges = position / RANGE - first_key / RANGE + 1;
        const int ranges_each = std::max(MIN_PART_RANGES, (num_ranges + MAX_PARTS - 1) / MAX_PARTS);
        keys_each = ranges_each * RANGE;
        count = (num_ranges + ranges_each - 1) / ranges_each;
    }
    int begin(int part) const { return part ? first_key / RANGE * RANGE + part * keys_each : first_key; }
    int end(int part) const { return part + 1 < count ? begin(part + 1) : num_keys; }
};

// What one worker computes, and the memory it does so in.
class Attention {
  public:
    Attention(const AttentionArguments& a, const Step& step, Worker& worker)
        : a_(a), step_(step), dim_(a.cache->head_dim), group_(a.num_heads / a.cache->num_kv_heads) {
        const size_t softmaxes = std::max(2, group_) * Softmax::size(TILE, dim_), padded = (size_t)group_ * TILE * dim_;
        const size_t num_floats = TILE * RANGE + softmaxes;
        const size_t num_bf16 = TILE * RANGE + padded + KeyReader::memory_size(*a.cache);
        scores_ = (float*)worker.scratch(num_floats * sizeof(float) + num_bf16 * sizeof(bf16));
        softmaxes_ = scores_ + TILE * RANGE;
        weights_ = (bf16*)(softmaxes_ + softmaxes);
        padded_ = weights_ + TILE * RANGE;
        decoded_ = padded_ + padded;
    }

    // One KV head of rows [first, last) of prompts.
    void prompts(int first, int last, int kv_head) {
        for (int end; first < last; first = end) {
            for (end = first + 1; end < last && step_.sequences[end] == step_.sequences[first];) ++end;
            prompt(first, end - first, kv_head);
        }
    }

    // One KV head of a generated token.
    void generated(int row, int kv_head) {
        const Parts parts(*a_.rule, step_.positions[row]);
        Softmax all = softmax(0, group_), more = softmax(1, group_);
        for (int i = 0; i < parts.count; ++i) {
            part(row, kv_head, parts, i, i ? more : all);
            if (i) merge(all, more);
        }
        finish(all, group_, out(row, kv_head), dim_);
    }

    // The same by several workers: first its parts, which it may have fewer of, then what joins them.
    void generated_part(int row, int kv_head, int i) {
        const Parts parts(*a_.rule, step_.positions[row]);
        if (i < parts.count) part(row, kv_head, parts, i, partial(row, kv_head, i));
    }
    void join_parts(int row, int kv_head) {
        const Parts parts(*a_.rule, step_.positions[row]);
        Softmax all = partial(row, kv_head, 0);
        for (int i = 1; i < parts.count; ++i) merge(all, partial(row, kv_head, i));
        finish(all, group_, out(row, kv_head), dim_);
    }

  private:
    Softmax softmax(int i, int count) { return {softmaxes_ + i * Softmax::size(TILE, dim_), count, dim_}; }
    Softmax partial(int row, int kv_head, int part) {
        const int64_t index = ((int64_t)row * a_.cache->num_kv_heads + kv_head) * MAX_PARTS + part;
        return {a_.partials + index * Softmax::size(group_, dim_), group_, dim_};
    }
    int qkv_size() const { return (a_.num_heads + 2 * a_.cache->num_kv_heads) * dim_; }
    const bf16* query(int row, int kv_head) const {
        return a_.qkv + (int64_t)row * qkv_size() + kv_head * group_ * dim_;
    }
    bf16* out(int row, int kv_head) const { return a_.out + ((int64_t)row * a_.num_heads + kv_head * group_) * dim_; }
    KeyReader reader(int row, int kv_head, int num_keys) const {
        const int32_t* table = step_.tables + (int64_t)step_.sequences[row] * step_.table_width;
        return {*a_.cache, table, kv_head, num_keys, decoded_};
    }

    void part(int row, int kv_head, const Parts& parts, int i, Softmax softmax) {
        if (a_.cache->type == CACHE_INT8) return part_of<int8_t>(row, kv_head, parts, i, softmax);
        if (a_.cache->type == CACHE_FP8) return part_of<uint8_t>(row, kv_head, parts, i, softmax);
        return part_of<bf16>(row, kv_head, parts, i, softmax);
    }

    template <class Element>
    void part_of(int row, int kv_head, const Parts& parts, int i, Softmax softmax) {
        const Queries heads{query(row, kv_head), dim_, group_, step_.positions[row], 0};
        softmax.clear();
        KeyReader keys = reader(row, kv_head, parts.num_keys);
        for_ranges(parts.begin(i), parts.end(i), [&](int first, int end) {
            const auto range = keys.read<Element>(first, end);
            score(heads.rows, heads.stride, heads.count, range.keys, range.num_blocks, dim_, scores_);
            weigh_tile(*a_.rule, range, heads, scores_, weights_, softmax);
            add_values(weights_, heads.count, range.values, range.num_blocks, dim_, softmax.values);
        });
    }

    void prompt(int row, int count, int kv_head) {
        const int position = step_.positions[row], num_keys = position + count;
        Queries tiles[MAX_GROUP];
        for (int h = 0; h < group_; ++h) {
            tiles[h] = {query(row, kv_head) + h * dim_, qkv_size(), count, position, 1};
            softmax(h, TILE).clear();
        }
        if (TILES_ARE_FULL && count < TILE) pad(tiles);
        KeyReader keys = reader(row, kv_head, num_keys);
        for_ranges(a_.rule->first_key(position), num_keys, [&](int first, int end) {
            const auto range = keys.read<bf16>(first, end);
            for (int h = 0; h < group_; ++h) {
                Softmax sums = softmax(h, TILE);
                score_tile(tiles[h], range, dim_, scores_);
                weigh_tile(*a_.rule, range, tiles[h], scores_, weights_, sums);
                add_values_tile(weights_, count, range, dim_, sums.values);
            }
        });
        for (int h = 0; h < group_; ++h)
            finish(softmax(h, TILE), count, out(row, kv_head) + h * dim_, (int64_t)a_.num_heads * dim_);
    }

    // Copies to where it does no harm to read TILE queries.
    void pad(Queries* tiles) {
        for (int h = 0; h < group_; ++h) {
            bf16* copy = padded_ + h * TILE * dim_;
            for (int q = 0; q < tiles[h].count; ++q)
                std::copy_n(tiles[h].rows + q * tiles[h].stride, dim_, copy + q * dim_);
            tiles[h].rows = copy;
            tiles[h].stride = dim_;
        }
    }

    template <class F>
    static void for_ranges(int first, int end, F f) {
        for (int last; first < end; first = last) f(first, last = std::min(end, first / RANGE * RANGE + RANGE));
    }

    const AttentionArguments& a_;
    const Step& step_;
    const int dim_, group_;
    float *scores_, *softmaxes_;
    bf16 *weights_, *padded_, *decoded_;
};

}  // namespace

extern "C" void paged_attention(const AttentionArguments& a, const Step& step, Worker& worker) {
    const int kv_heads = a.cache->num_kv_heads, generated = step.num_generated;
    const int num_tiles = (step.num_rows - generated + TILE - 1) / TILE;
    Attention attention(a, step, worker);
    worker.deal(num_tiles * kv_heads, 1, [&](int item, int) {
        const AttentionTiles configured;
        const int tile = num_tiles - 1 - item / kv_heads;  // a prompt's last tile takes longest
        const int first = generated + tile * TILE;
        attention.prompts(first, std::min(first + TILE, step.num_rows), item % kv_heads);
    });
    if (generated > MAX_SHARED_ROWS) {
        worker.deal(generated * kv_heads, 1,
                    [&](int item, int) { attention.generated(item / kv_heads, item % kv_heads); });
        return;
    }
    const int pairs = generated * kv_heads;
    worker.deal(pairs * MAX_PARTS, 1, [&](int item, int) {
        attention.generated_part(item % pairs / kv_heads, item % kv_heads, item / pairs);
    });
    worker.barrier();
    worker.deal(pairs, 1, [&](int item, int) { attention.join_parts(item / kv_heads, item % kv_heads); });
}
