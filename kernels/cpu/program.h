// A step's kernels as a list, carried out by a team of threads in one call.
#pragma once
#include "worker.h"

// kernel: a function like those of worker.h, whose arguments are of its own type.
struct Operation {
    void (*kernel)(const void* arguments, const Step& step, Worker& worker);
    const void* arguments;
};

extern "C" {
// All operations in their order, by num_workers threads: the caller and helpers that sleep between programs. One program
// runs at a time; another caller waits. False if a kernel wanted more deals than there are: its work is not whole then.
bool run_program(const Operation* operations, int num_operations, const Step* step, int num_workers);
}
