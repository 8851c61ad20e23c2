// How a step's kernels share the cores. Every kernel is called by all workers at once and deals its items among them:
//
//     void some_kernel(const SomeArguments& arguments, const Step& step, Worker& worker) {
//         worker.deal(step.num_rows, 4, [&](int first, int last) { ... rows first to last ... });
//     }
//
// No OpenMP inside kernels: one parallel region spans a whole program (see program.cpp), which puts a barrier between two kernels.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

// The rows of one step, generated tokens' first. positions, sequences [num_rows]; slots [num_rows] number tokens of the
// cache; tables [number of sequences, table_width] block numbers.
struct Step {
    int num_rows, num_generated;
    int table_width;
    const int32_t* positions;
    const int32_t* sequences;
    const int64_t* slots;
    const int32_t* tables;
};

class Team;

class Worker {
  public:
    const int index, count;

    Worker(Team& team, int index, int count) : index(index), count(count), team_(team) {}

    // Until every worker has come here. Needed where a kernel reads what another worker wrote in the same kernel.
    void barrier();

    // f(first, last) on pieces of `grain` of the items 0..n, each taken by the worker that is free first. Whoever deals twice in
    // one kernel puts a barrier between.
    template <class F>
    void deal(int n, int grain, F f) {
        for (int first = take(grain); first < n; first = take(grain)) f(first, first + grain < n ? first + grain : n);
    }

    // Memory of this worker alone, aligned to 64 bytes; valid until it asks again.
    void* scratch(size_t bytes);

  private:
    int take(int grain);  // the next undealt item
    Team& team_;
};
