// Reads a sequence's keys and values from the paged cache, a range at a time, as bfloat16.
#pragma once
#include "attention.h"

struct KeyRange {
    int first_key = 0, num_blocks = 0;
    const bf16* keys[RANGE_BLOCKS];
    const bf16* values[RANGE_BLOCKS];
    const float* scales[RANGE_BLOCKS];  // if `scaled`: what each token's score [16] and then weight [16] is to be multiplied by
    bool scaled;
};

class KeyReader {
  public:
    // The sequence has written num_keys tokens; what lies behind them, in its last block, may be anything.
    KeyReader(const Cache& cache, const int32_t* table, int kv_head, int num_keys, bf16* memory)
        : cache_(cache), table_(table), kv_head_(kv_head), num_keys_(num_keys), memory_(memory) {}

    static size_t memory_size(const Cache& cache) {  // elements
        return (size_t)cache.key_size() * (cache.scales ? 2 * RANGE_BLOCKS : 1);
    }

    // The blocks of keys [first, end), which lie between two multiples of RANGE. Valid until the next call.
    KeyRange read(int first, int end) {
        KeyRange range;
        range.scaled = cache_.scales;
        range.first_key = first / BLOCK * BLOCK;
        for (int key = range.first_key; key < end; key += BLOCK) {
            const int64_t page = cache_.page(table_[key / BLOCK], kv_head_);
            read_page(range, range.num_blocks, page);
            if (key + BLOCK > num_keys_) drop_unwritten(range, range.num_blocks, num_keys_ - key);
            ++range.num_blocks;
        }
        return range;
    }

  private:
    void read_page(KeyRange& range, int b, int64_t page) {
        range.scales[b] = cache_.scales ? cache_.scales + page * 2 * BLOCK : nullptr;
        if (cache_.type == CACHE_INT8) return decode<Int8>(range, b, page);
        if (cache_.type == CACHE_FP8) return decode<Fp8>(range, b, page);
        range.keys[b] = cache_.keys<bf16>(page);
        range.values[b] = range.keys[b] + cache_.key_size();
    }

    template <class Code>
    void decode(KeyRange& range, int b, int64_t page) {
        bf16* out = memory_ + b * 2 * cache_.key_size();
        const auto* codes = cache_.keys<typename Code::Element>(page);
        for (int i = 0; i < 2 * cache_.key_size(); ++i) out[i] = Code::decode(codes[i]);
        range.keys[b] = out;
        range.values[b] = out + cache_.key_size();
    }

    // Their weight is 0, but 0 times NaN is NaN.
    void drop_unwritten(KeyRange& range, int b, int num_written) {
        bf16* clean = memory_ + (cache_.scales ? (b * 2 + 1) * cache_.key_size() : 0);
        if (!cache_.scales) std::copy(range.values[b], range.values[b] + cache_.key_size(), clean);
        for (int j = num_written; j < BLOCK; ++j)
            for (int d = 0; d < cache_.head_dim; ++d) clean[(j / 2 * cache_.head_dim + d) * 2 + j % 2] = 0;
        range.values[b] = clean;
    }

    const Cache& cache_;
    const int32_t* table_;
    const int kv_head_, num_keys_;
    bf16* memory_;
};
