// Reads a sequence's keys and values from the paged cache, a range at a time.
#pragma once
#include <type_traits>

#include "attention.h"

// Up to RANGE following tokens of one sequence, from a block's beginning on.
struct KeyBlocks {
    int first_key = 0, num_blocks = 0;
    bool scaled;
    const float* scales[RANGE_BLOCKS];  // if scaled: what tokens' scores [16] and weights [16] are to be multiplied by
};

template <class Element>
struct KeyRange : KeyBlocks {
    const Element* keys[RANGE_BLOCKS];
    const Element* values[RANGE_BLOCKS];
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
    // Element: as the cache has them, or bfloat16 whatever it has.
    template <class Element>
    KeyRange<Element> read(int first, int end) {
        KeyRange<Element> range;
        range.first_key = first / BLOCK * BLOCK;
        range.scaled = cache_.scales;
        for (int key = range.first_key; key < end; key += BLOCK) {
            const int b = range.num_blocks++;
            const int64_t page = cache_.page(table_[key / BLOCK], kv_head_);
            range.keys[b] = elements<Element>(b, page);
            range.values[b] = range.keys[b] + cache_.key_size();
            range.scales[b] = cache_.scales ? cache_.scales + page * 2 * BLOCK : nullptr;
            if constexpr (std::is_same_v<Element, bf16>)
                if (!cache_.scales && key + BLOCK > num_keys_)
                    range.values[b] = written_only(range.values[b], num_keys_ - key);
        }
        return range;
    }

  private:
    template <class Element>
    const Element* elements(int b, int64_t page) {
        if constexpr (std::is_same_v<Element, bf16>) {
            if (cache_.type == CACHE_INT8) return decoded(b, cache_.keys<int8_t>(page));
            if (cache_.type == CACHE_FP8) return decoded(b, cache_.keys<uint8_t>(page));
        }
        return cache_.keys<Element>(page);
    }

    template <class Code>
    const bf16* decoded(int b, const Code* codes) {
        bf16* out = memory_ + b * 2 * cache_.key_size();
        for (int i = 0; i < 2 * cache_.key_size(); i += 2 * LANES) store(out + i, load_pairs(codes + i));
        return out;
    }

    // A copy with zeros where nothing was written: weights are 0 there, but 0 times NaN is NaN. (Codes are never NaN.)
    const bf16* written_only(const bf16* values, int num_written) {
        std::copy_n(values, cache_.key_size(), memory_);
        for (int j = num_written; j < BLOCK; ++j)
            for (int d = 0; d < cache_.head_dim; ++d) memory_[(j / 2 * cache_.head_dim + d) * 2 + j % 2] = 0;
        return memory_;
    }

    const Cache& cache_;
    const int32_t* table_;
    const int kv_head_, num_keys_;
    bf16* memory_;
};
