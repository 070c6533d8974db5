// What CUDA C++ names in a kernel, for a compiler that knows none of it; engine.cpp runs the threads.
#pragma once
#include <cstdint>
#include <cstring>

#define __global__
#define __launch_bounds__(...)
// in one place, so that it can be filled with 0xFF before each block
#define __shared__ static __attribute__((section("shared_memory")))

struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
extern uint3 threadIdx, blockIdx, blockDim, gridDim;

using Kernel = void (*)(const unsigned long long* arguments);
extern "C" const char* launch(Kernel, const unsigned long long* arguments, unsigned blocks, unsigned threads,
                              unsigned seed, char* shared, char* shared_end);

void wait_for_block(int line);
// Brings eight bytes, waits until the 32 threads of the warp have, and returns what they brought.
const unsigned long long* meet(int line, unsigned mask, unsigned long long brought);

template <class To, class From> To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int bit = 0; bit < 32; bit++) y |= (x >> bit & 1) << (31 - bit);
    return y;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }

#define __syncthreads() wait_for_block(__LINE__)
#define __ballot_sync(mask, truth) ballot(meet(__LINE__, mask, !!(truth)))
#define __shfl_sync(mask, value, lane) shuffled(value, meet(__LINE__, mask, packed(value)), lane)
#define __shfl_up_sync(mask, value, far) \
    shuffled(value, meet(__LINE__, mask, packed(value)), threadIdx.x % 32 - (threadIdx.x % 32 < (far) ? 0 : (far)))
#define __shfl_xor_sync(mask, value, far) \
    shuffled(value, meet(__LINE__, mask, packed(value)), (threadIdx.x ^ (far)) & 31)

template <class T> unsigned long long packed(T x) {
    unsigned long long bytes = 0;
    memcpy(&bytes, &x, sizeof x);
    return bytes;
}
template <class T> T shuffled(T x, const unsigned long long* brought, unsigned lane) {
    memcpy(&x, brought + lane, sizeof x);
    return x;
}
inline unsigned ballot(const unsigned long long* brought) {
    unsigned truths = 0;
    for (int lane = 0; lane < 32; lane++) truths |= unsigned(brought[lane]) << lane;
    return truths;
}
template <class T> T atomicAdd(T* place, T x) {  // one thread runs at a time
    T before = *place;
    *place += x;
    return before;
}

// The launcher of a kernel whose parameters have eight bytes each.
namespace launcher {
template <int... I> struct Places {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { using Type = Places<I...>; };
template <class... A, int... I> void call(void (*f)(A...), const unsigned long long* arguments, Places<I...>) {
    static_assert(((sizeof(A) == 8) && ...));
    f(bits_as<A>(arguments[I])...);
}
template <class... A> void call(void (*f)(A...), const unsigned long long* arguments) {
    call(f, arguments, typename Count<sizeof...(A)>::Type());
}
}  // namespace launcher
extern __attribute__((weak, visibility("hidden"))) char __start_shared_memory, __stop_shared_memory;
#define LAUNCHER(kernel)                                                                                             \
    extern "C" const char* launch_##kernel(const unsigned long long* arguments, unsigned blocks, unsigned threads,   \
                                           unsigned seed) {                                                          \
        return launch([](const unsigned long long* a) { launcher::call(kernel, a); }, arguments, blocks, threads,    \
                      seed, &__start_shared_memory, &__stop_shared_memory);                                          \
    }
