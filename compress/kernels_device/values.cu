// What blocks have in common, as values.py and packing.py have it for the host.
//
// A block of values belongs to a team of threads, eight neighbouring values to each of them. What a team computes, all
// threads of a block compute at the same time, because they wait for each other there.

constexpr int TEAM = BLOCK / 8, THREADS = TEAM > 256 ? TEAM : 256, TEAMS = THREADS / TEAM;
constexpr bool ONE_WARP = TEAM <= 32;

// Bits of the smallest float that is not denormal.
constexpr uint32 SMALLEST = 0x00800000, NAN_SCALE = 0xFFFF;

struct Member {
    int place;  // in the team
    int own;    // how many of its eight values there are
    int count;  // values of the block
};

// For teams of several warps.
__shared__ float room[ONE_WARP ? 1 : 8 * THREADS];

// The nearest whole number, ties to even, modulo 2**22.
uint32 nearest(float x) { return __float_as_uint(x + 0x1.8p23f); }

// The least power of two from 8 on that n values fit.
int filled(int n) {
    int size = 8;
    while (size < n) size *= 2;
    return size;
}

// --- over a team -----------------------------------------------------------------------------------

uint32 team_max(uint32 x) {
    for (int far = 1; far < TEAM && far < 32; far *= 2) {
        uint32 y = __shfl_xor_sync(~0u, x, far);
        x = y > x ? y : x;
    }
    if (ONE_WARP) return x;
    __syncthreads();
    room[threadIdx.x] = __uint_as_float(x);
    __syncthreads();
    for (int i = threadIdx.x / TEAM * TEAM; i < (int)threadIdx.x / TEAM * TEAM + TEAM; i += 32) {
        uint32 y = __float_as_uint(room[i]);
        x = y > x ? y : x;
    }
    return x;
}

// The largest magnitude.
uint32 peak(const float* x) {
    uint32 largest = 0;
    for (int j = 0; j < 8; j++) largest = magnitude(x[j]) > largest ? magnitude(x[j]) : largest;
    return team_max(largest);
}

// The sum of values, which are overwritten: halves are added until one is left. Values that are not there are zero.
float tree_sum(float* x) {
    if (!ONE_WARP) {
        for (int half = TEAM / 2; half >= 32; half /= 2) {
            __syncthreads();
            for (int j = 0; j < 8; j++) room[j * THREADS + threadIdx.x] = x[j];
            __syncthreads();
            if (threadIdx.x % TEAM < half)
                for (int j = 0; j < 8; j++) x[j] += room[j * THREADS + threadIdx.x + half];
        }
    }
    for (int far = (ONE_WARP ? TEAM : 32) / 2; far; far /= 2)
        for (int j = 0; j < 8; j++) x[j] += __shfl_xor_sync(~0u, x[j], far);
    float sum = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
    if (ONE_WARP) return sum;
    __syncthreads();
    room[threadIdx.x] = sum;
    __syncthreads();
    return room[threadIdx.x / TEAM * TEAM];
}

// The power of two at or below the peak: divided by it, no square overflows, and that of the peak is there.
float power_below(uint32 peak) {
    uint32 bits = peak & INFINITE;
    return __uint_as_float(bits > SMALLEST ? bits : SMALLEST);
}

// The Euclidean norm.
float norm(const float* x, float unit) {
    float squares[8];
    for (int j = 0; j < 8; j++) squares[j] = (x[j] / unit) * (x[j] / unit);
    return __fsqrt_rn(tree_sum(squares)) * unit;
}

// --- scales of 16 bits: floats of 9 significant bits, without a sign, not above `most` --------------

uint32 scale_rounded(float x, float most, uint32 half) {
    uint32 bits = (__float_as_uint(x) + half) >> 15, limit = __float_as_uint(most) >> 15;
    return bits < limit ? bits : limit;
}
uint32 scale_up(float x, float most) { return scale_rounded(x, most, 0x7FFF); }
uint32 scale_near(float x, float most) { return scale_rounded(x, most, 0x4000); }
float scale(uint32 bits) { return __uint_as_float(bits << 15); }

// --- bytes -----------------------------------------------------------------------------------------

template <int N> void put_bytes(uint8* to, uint64 word) {
    if (N % 2 == 0 && (uint64)to % 2 == 0)
        for (int b = 0; b < N; b += 2) *(uint16*)(to + b) = (uint16)(word >> 8 * b);
    else
        for (int b = 0; b < N; b++) to[b] = (uint8)(word >> 8 * b);
}
template <int N> uint64 get_bytes(const uint8* from) {
    uint64 word = 0;
    if (N % 2 == 0 && (uint64)from % 2 == 0)
        for (int b = 0; b < N; b += 2) word |= (uint64)*(const uint16*)(from + b) << 8 * b;
    else
        for (int b = 0; b < N; b++) word |= (uint64)from[b] << 8 * b;
    return word;
}

// Eight codes of so many bits, the first in the lowest; those that are not there are zero.
template <int WIDTH> void pack(const uint32* codes, int own, uint8* to) {
    uint64 word = 0;
    for (int j = 0; j < 8; j++) word |= (uint64)codes[j] << WIDTH * j;
    if (own) put_bytes<WIDTH>(to, word & ~0ULL >> (64 - WIDTH * own));
}
template <int WIDTH> void unpack(const uint8* from, int own, uint32* codes) {
    uint64 word = own ? get_bytes<WIDTH>(from) : 0;
    for (int j = 0; j < 8; j++) codes[j] = word >> WIDTH * j & ((1 << WIDTH) - 1);
}
constexpr int packed(int width, int n) { return width * ((n + 7) / 8); }
