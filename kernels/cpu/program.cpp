// The team of threads that carries programs out. Threads are made when first needed and never end.
#include "program.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

void* Worker::scratch(size_t bytes) {
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    static thread_local std::unique_ptr<void, Free> memory;
    static thread_local size_t size = 0;
    if (size < bytes) {
        size = (bytes + 4095) / 4096 * 4096;
        memory.reset();
        memory.reset(std::aligned_alloc(64, size));
    }
    return memory.get();
}

namespace {

struct Program {
    const Operation* operations;
    int num_operations;
    const Step* step;
    int num_workers;
    Deal* deals;

    // False if a kernel made too many deals: every worker finds that out for itself.
    bool work(int index) const {
        Worker worker(index, num_workers);
        for (int i = 0; i < num_operations; ++i) {
            worker.begin(deals + i * MAX_DEALS);
            operations[i].kernel(operations[i].arguments, *step, worker);
            worker.barrier();
        }
        return !worker.has_overflowed();
    }
};

class Team {
  public:
    bool run(const Operation* operations, int num_operations, const Step* step, int num_workers) {
        const std::lock_guard<std::mutex> one_at_a_time(mutex_);
        const size_t num_deals = (size_t)num_operations * MAX_DEALS;
        if (deals_.size() < num_deals) deals_ = std::vector<Deal>(num_deals);
        for (size_t i = 0; i < num_deals; ++i) new (&deals_[i]) Deal;
        program_ = {operations, num_operations, step, num_workers, deals_.data()};
        add_helpers(num_workers - 1);
        if (num_workers > 1) {
            if (!++last_ticket_) ++last_ticket_;  // 0 says that nothing runs
            ticket_.store(last_ticket_);
            ticket_.notify_all();
        }
        const bool is_whole = program_.work(0);
        ticket_.store(0);
        while (inside_.load()) sched_yield();  // those who came in time; who comes later finds the door closed
        return is_whole;
    }

  private:
    void add_helpers(int wanted) {
        try {
            for (; num_helpers_ < wanted; ++num_helpers_)
                std::thread(&Team::help, this, num_helpers_ + 1).detach();
        } catch (const std::system_error&) {
            // The system gives no more threads: those that are here do all the work, since nobody waits for a worker.
        }
    }

    [[noreturn]] void help(int index) {
        for (uint32_t seen = 0;;) {
            seen = await_ticket_after(seen);
            inside_.fetch_add(1);
            // The order of all is sequential: either run() sees us inside, or we see that its program has ended.
            if (ticket_.load() == seen && index < program_.num_workers) program_.work(index);
            inside_.fetch_sub(1);
        }
    }

    uint32_t await_ticket_after(uint32_t seen) {
        for (int spins = 0;; ++spins) {
            const uint32_t ticket = ticket_.load();
            if (ticket && ticket != seen) return ticket;
            spins < SPINS ? _mm_pause() : ticket_.wait(ticket);
        }
    }

    static constexpr int SPINS = 1000;  // 20 to 50 us: a step is two programs, one shortly after the other
    std::mutex mutex_;
    Program program_{};
    std::vector<Deal> deals_;
    int num_helpers_ = 0;
    uint32_t last_ticket_ = 0;
    std::atomic<uint32_t> ticket_{0};
    std::atomic<int> inside_{0};
};

}  // namespace

extern "C" bool run_program(const Operation* operations, int num_operations, const Step* step, int num_workers) {
    static Team& team = *new Team;  // never destroyed: its threads may wait on it while the process ends
    return team.run(operations, num_operations, step, num_workers);
}
