// How a step's kernels share the cores. Every kernel is called by all workers at once and deals its items among them:
//
//     extern "C" void some_kernel(const SomeArguments& arguments, const Step& step, Worker& worker) {
//         worker.deal(step.num_rows, 4, [&](int first, int last) { ... rows first to last ... });
//     }
//
// No OpenMP inside kernels: the program (program.cpp) waits for all deals of a kernel before the next kernel begins.
//
// Nobody waits for a worker, only for items: one that the operating system holds up comes late, finds the deals closed
// and runs through the kernels that the others have finished. Therefore
// - all work and every write to shared memory is done inside deals; `index` is good for nothing but statistics;
// - all workers make the same deals in the same order, MAX_DEALS a kernel at most;
// - outside of deals, a kernel may read arguments and step, and of activations only what it then passes to `deal` as n
//   (a late worker may read rubbish there; its deal is closed and takes no notice).
#pragma once
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

// The rows of one step, generated tokens' first. positions, sequences [num_rows]; slots [num_rows] number tokens of the
// cache; tables [number of sequences, table_width] block numbers. Programs without attention have none of these arrays.
struct Step {
    int num_rows, num_generated;
    int table_width;
    const int32_t* positions;
    const int32_t* sequences;
    const int64_t* slots;
    const int32_t* tables;
};

static constexpr int MAX_DEALS = 8;

// One deal of one kernel: the next item that nobody has taken, how many are done, and whether that is all of them.
struct Deal {
    std::atomic<int> next{0}, done{0}, closed{0};
};

class Worker {
  public:
    const int index, count;

    Worker(int index, int count) : index(index), count(count) {}

    // f(first, last) on pieces of `grain` of the items 0..n, each taken by the worker that is free first. Two deals without a
    // barrier between may run at the same time.
    template <class F>
    void deal(int n, int grain, F f) {
        if (next_deal_ == end_) {
            has_overflowed_ = true;
            return;
        }
        Deal& deal = *next_deal_++;
        std::atomic_signal_fence(std::memory_order_seq_cst);  // n is read before: if the deal isn't closed then, n is valid
        if (deal.closed.load(std::memory_order_acquire)) return;
        if (n <= 0) deal.closed.store(1, std::memory_order_release);
        for (int first; (first = deal.next.fetch_add(grain, std::memory_order_relaxed)) < n;) {
            const int last = std::min(first + grain, n);
            f(first, last);
            if (deal.done.fetch_add(last - first, std::memory_order_acq_rel) + last - first == n)
                deal.closed.store(1, std::memory_order_release);
        }
    }

    // Until all that was dealt so far is done. Needed where a kernel reads what an earlier deal of its own wrote.
    void barrier() {
        for (; awaited_ != next_deal_; ++awaited_)
            for (int spins = 0; !awaited_->closed.load(std::memory_order_acquire); ++spins)
                spins < SPINS ? _mm_pause() : (void)sched_yield();
    }

    // Memory of this thread alone, aligned to 64 bytes; valid until it asks again.
    void* scratch(size_t bytes);

    // The next kernel deals from these MAX_DEALS on.
    void begin(Deal* deals) {
        next_deal_ = awaited_ = deals;
        end_ = deals + MAX_DEALS;
    }

    // Whether a kernel has asked for more of them: what it wanted to deal was left undone.
    bool has_overflowed() const { return has_overflowed_; }

  private:
    static constexpr int SPINS = 2000;  // of 20 to 50 ns: longer than a piece, and what is longer still must wait for its core
    Deal* next_deal_ = nullptr;
    Deal* awaited_ = nullptr;
    Deal* end_ = nullptr;
    bool has_overflowed_ = false;
};
