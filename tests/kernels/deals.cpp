// Kernels that only tests need: what they compute is wrong as soon as an item is lost, done twice or done too early.
#include <sched.h>
#include <unistd.h>

#include "worker.h"

struct ShuffleArguments {
    const int64_t* x;  // [T, size]
    int64_t* kept;     // [T, size]
    int64_t* out;      // [T, size]
    int size;
    int grain;
    int nap_us;  // who takes item 0 sleeps so long
};

extern "C" {
// Two deals: kept = x + 1; then, of the whole and backwards, out = 3 * kept modulo a prime.
void shuffle(const ShuffleArguments& a, const Step& step, Worker& worker) {
    const int n = step.num_rows * a.size;
    worker.deal(n, a.grain, [&](int first, int last) {
        if (first == 0 && a.nap_us) usleep(a.nap_us);
        for (int i = first; i < last; ++i) a.kept[i] = a.x[i] + 1;
    });
    worker.barrier();
    worker.deal(n, a.grain, [&](int first, int last) {
        for (int i = first; i < last; ++i) a.out[i] = 3 * a.kept[n - 1 - i] % 1000003;
    });
}

// Three deals at once, each adding 1 to every item of its own third of out; another deals nothing.
void side_by_side(const ShuffleArguments& a, const Step& step, Worker& worker) {
    const int n = step.num_rows * a.size / 3;
    worker.deal(0, 1, [&](int, int) { a.out[0] = -1; });
    for (int part = 0; part < 3; ++part)
        worker.deal(n, a.grain, [&, part](int first, int last) {
            for (int i = first; i < last; ++i) a.out[part * n + i] += a.x[part * n + i] + 1;
        });
}

// As many deals as a step has rows, each adding 1 to out.
void many_deals(const ShuffleArguments& a, const Step& step, Worker& worker) {
    for (int i = 0; i < step.num_rows; ++i) {
        worker.deal(1, 1, [&](int, int) { ++*a.out; });
        worker.barrier();
    }
}

// Writes to scratch what it then reads: another's would differ.
void through_scratch(const ShuffleArguments& a, const Step& step, Worker& worker) {
    worker.deal(step.num_rows, 1, [&](int row, int) {
        int64_t* mine = (int64_t*)worker.scratch(a.size * sizeof(int64_t));
        for (int i = 0; i < a.size; ++i) mine[i] = a.x[row * a.size + i] + row;
        sched_yield();
        for (int i = 0; i < a.size; ++i) a.out[row * a.size + i] = mine[i];
    });
}
}
