// One value at random out of each of k runs, as randomk.py has them: a message is the hash that tells the places, then
// the values.

constexpr int THREADS = 256;

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

struct Run {
    int64 first, last, place;

    Run(uint32 key, int64 j, int64 k, int64 count) {
        first = j * count / k;
        last = (j + 1) * count / k;
        place = first + ((uint64)mix(key + (uint32)j) * (uint64)(last - first) >> 32);
    }
};

// LANES neighbouring threads look at a run, for what is not finite.
KERNEL encode(uint8* out, const T* a, int64 index, int64 count, uint64 stream, int64 k) {
    int64 j = ((int64)blockIdx.x * THREADS + threadIdx.x) / LANES;
    int lane = threadIdx.x % LANES;
    uint32 key = (uint32)noise_key(stream & ((1ULL << 40) - 1), index), worst = 0;  // a stream without its rank
    Run run(key, j < k ? j : 0, k, count);
    if (j < k)
        for (int64 i = run.first / 8 * 8 + 8 * lane; i < run.last; i += 8 * LANES) {
            Eight x = load(a + i, count - i > 8 ? 8 : count - i);
            for (int m = 0; m < 8; m++)
                if (i + m >= run.first && i + m < run.last && magnitude(single(x.at[m])) > worst)
                    worst = magnitude(single(x.at[m]));
        }
    for (int far = 1; far < LANES; far *= 2) {
        uint32 other = __shfl_xor_sync(~0u, worst, far);
        worst = other > worst ? other : worst;
    }
    if (j >= k || lane) return;
    if (j == 0) *(uint32*)out = key;
    float sent = single(a[run.place]) * (UNBIASED ? (float)(run.last - run.first) : 1);
    sent = sent > LARGEST ? LARGEST : sent < -LARGEST ? -LARGEST : sent;
    ((float*)out)[1 + j] = worst < INFINITE ? sent : __uint_as_float(0x7FC00000);
}

// Adds the values of a message.
KERNEL spread(T* out, const uint8* message, int64 count, int64 k) {
    int64 j = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (j >= k) return;
    Run run(*(const uint32*)message, j, k, count);
    out[run.place] = plus(out[run.place], ((const float*)message)[1 + j]);
}
