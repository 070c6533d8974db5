// Runs the threads of a kernel on one processor core, a block at a time; each is a fiber with a stack of its own.
//
// A thread runs until it waits: at __syncthreads for its block, at a warp operation for its warp. A barrier that not
// all threads reach, or reach at different lines, is an error and no deadlock. The seed chooses the order in which
// threads and blocks run: a missing barrier shows as a wrong result under one of them, and shared memory is full of NaN
// before it is written. Bad addresses and undefined behaviour, for which the compiler sets traps, are caught.
#include "engine.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <random>
#include <ucontext.h>
#include <vector>

uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr unsigned WARP = 32, MOST_THREADS = 1024;
constexpr size_t STACK = 64 << 10;
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};

struct Fiber {
    ucontext_t start;
    jmp_buf here;
    bool begun, done, of_warp;
    int line;  // of the barrier it waits at, 0 while it runs
    unsigned turn;
};

Fiber fibers[MOST_THREADS];
unsigned long long brought[2][MOST_THREADS];  // two: who is ahead by one warp operation must not overwrite
char* stacks;
jmp_buf scheduler;
sigjmp_buf fault;
Kernel kernel;
const unsigned long long* arguments;
char message[200];

void fail(const char* what, int line) {
    if (!message[0])
        snprintf(message, sizeof message, "block %u, thread %u, line %d: %s", blockIdx.x, threadIdx.x, line, what);
}

void wait(int line, bool of_warp) {
    Fiber& f = fibers[threadIdx.x];
    f.line = line, f.of_warp = of_warp;
    if (!_setjmp(f.here)) _longjmp(scheduler, 1);
}

void begin() {
    kernel(arguments);
    fibers[threadIdx.x].done = true;
    _longjmp(scheduler, 1);
}

__attribute__((noinline)) void resume(unsigned i) {  // or what its caller keeps in registers would be lost
    Fiber& f = fibers[i];
    threadIdx = {i, 0, 0};
    if (_setjmp(scheduler)) return;
    if (f.begun) _longjmp(f.here, 1);
    f.begun = true;
    setcontext(&f.start);
}

// Lets threads go on if they all wait for each other.
bool release(unsigned first, unsigned last, bool of_warp) {
    for (unsigned i = first; i < last; i++)
        if (fibers[i].done || !fibers[i].line || fibers[i].of_warp != of_warp) return false;
    int line = fibers[first].line;
    for (unsigned i = first; i < last; i++) {
        threadIdx.x = i;
        if (fibers[i].line != line) fail("a barrier that threads reach at different lines", fibers[i].line);
        fibers[i].line = 0;
    }
    return true;
}

// Runs the threads of a warp until they wait; whether one could.
bool run_warp(const unsigned* threads) {
    bool moved = false;
    for (unsigned k = 0; k < WARP; k++) {
        const Fiber& f = fibers[threads[k]];
        if (f.done || f.line) continue;
        resume(threads[k]);
        moved = true;
    }
    unsigned first = threads[0] / WARP * WARP;
    return release(first, first + WARP, true) || moved;
}

// One warp runs ahead as far as it can, then another.
void run_block(unsigned seed, std::mt19937& random) {
    unsigned threads = blockDim.x, warps = threads / WARP;
    unsigned order[MOST_THREADS], warp_order[MOST_THREADS / WARP];
    for (unsigned i = 0; i < threads; i++) {
        order[i] = seed == 1 ? i ^ (WARP - 1) : i;
        Fiber& f = fibers[i];
        f.begun = f.done = false, f.line = 0, f.turn = 0;
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = stacks + i * STACK, f.start.uc_stack.ss_size = STACK;
        makecontext(&f.start, begin, 0);
    }
    for (unsigned w = 0; w < warps; w++) warp_order[w] = seed == 1 ? warps - 1 - w : w;
    auto finished = [=] { return std::all_of(fibers, fibers + threads, [](const Fiber& f) { return f.done; }); };
    while (!message[0]) {
        bool moved = false;
        for (unsigned w = 0; w < warps && !moved; w++) {
            unsigned* lanes = order + warp_order[w] * WARP;
            if (seed > 1) std::shuffle(lanes, lanes + WARP, random);
            moved = run_warp(lanes);
        }
        if (seed > 1) std::shuffle(warp_order, warp_order + warps, random);
        if (moved || release(0, threads, false)) continue;
        if (finished()) return;
        const Fiber* last = std::max_element(fibers, fibers + threads,
                                             [](const Fiber& a, const Fiber& b) { return a.line < b.line; });
        fail("a barrier that not all threads reach", last->line);
    }
}

void crashed(int) { siglongjmp(fault, 1); }

}  // namespace

void wait_for_block(int line) { wait(line, false); }

const unsigned long long* meet(int line, unsigned mask, unsigned long long x) {
    if (mask != ~0u) fail("a warp operation of some lanes only", line);
    Fiber& f = fibers[threadIdx.x];
    unsigned long long* slots = brought[f.turn++ % 2];
    slots[threadIdx.x] = x;
    wait(line, true);
    return slots + threadIdx.x / WARP * WARP;
}

// What went wrong, or nothing.
extern "C" const char* launch(Kernel function, const unsigned long long* values, unsigned blocks, unsigned threads,
                              unsigned seed, char* shared, char* shared_end) {
    message[0] = 0;
    kernel = function, arguments = values, blockDim = {threads, 1, 1}, gridDim = {blocks, 1, 1};
    if (!threads || threads > MOST_THREADS || threads % WARP) return "a block has 32, 64 .. 1024 threads";
    if (!stacks) stacks = (char*)malloc(MOST_THREADS * STACK);
    std::mt19937 random(seed);
    std::vector<unsigned> order(blocks);
    std::iota(order.begin(), order.end(), 0u);
    if (seed) std::shuffle(order.begin(), order.end(), random);
    struct sigaction ours = {}, before[std::size(SIGNALS)];
    ours.sa_handler = crashed, ours.sa_flags = SA_NODEFER;
    for (size_t k = 0; k < std::size(SIGNALS); k++) sigaction(SIGNALS[k], &ours, before + k);
    if (sigsetjmp(fault, 1)) fail("a bad address, or undefined behaviour", 0);
    for (unsigned k = 0; k < blocks && !message[0]; k++) {
        blockIdx = {order[k], 0, 0};
        if (shared) memset(shared, 0xFF, shared_end - shared);
        run_block(seed, random);
    }
    for (size_t k = 0; k < std::size(SIGNALS); k++) sigaction(SIGNALS[k], before + k, nullptr);
    return message[0] ? message : nullptr;
}
