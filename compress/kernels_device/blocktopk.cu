// Blocks of largest Euclidean norm, as blocktopk.py has them; selection.cu finds which they are.
//
// A block of values belongs to a team of threads. Value t + TEAM * j is thread t's, so that halves of a block are added
// in a thread first, and then neighbouring threads read neighbouring values all the same.

constexpr int TEAM = BLOCK / 8, THREADS = TEAM > 256 ? TEAM : 256, TEAMS = THREADS / TEAM;

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

// out = the norm of every block; there is one NaN.
KERNEL norms(float* out, const T* a, int64 count) {
    __shared__ double room[THREADS];
    int place = threadIdx.x % TEAM;
    int64 block = (int64)blockIdx.x * TEAMS + threadIdx.x / TEAM, first = block * BLOCK + place;
    double squares[8];
    for (int j = 0; j < 8; j++) {
        double size = first + TEAM * j < count ? (double)single(a[first + TEAM * j]) : 0;
        squares[j] = size * size;
    }
    for (int half = 4; half; half /= 2)
        for (int j = 0; j < half; j++) squares[j] += squares[j + half];
    double sum = squares[0];
    for (int half = TEAM / 2; half >= 32; half /= 2) {
        __syncthreads();
        room[threadIdx.x] = sum;
        __syncthreads();
        if (place < half) sum += room[threadIdx.x + half];
    }
    for (int far = (TEAM < 32 ? TEAM : 32) / 2; far; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
    if (place == 0 && block * BLOCK < count) out[block] = one_nan((float)__dsqrt_rn(sum));
}

// Eight values of one of the `taken` blocks whose numbers a message begins with; `own` are before the end.
struct Piece {
    int64 at, first;
    int own;
};

// What a thread is to do: `at` counts values of the message, and is -1 if there is nothing.
Piece mine(const uint8* message, int64 count, int64 taken) {
    int64 k = ((int64)blockIdx.x * THREADS + threadIdx.x) / TEAM, place = threadIdx.x % TEAM * 8;
    if (k >= taken) return {-1, 0, 0};
    int64 first = ((const uint32*)message)[k] * (int64)BLOCK + place, left = count - first;
    return {k * BLOCK + place, first, left > 8 ? 8 : left > 0 ? (int)left : 0};
}

// Writes the values, and zeros after the end.
KERNEL fill(uint8* out, const T* a, int64 count, int64 taken) {
    Piece p = mine(out, count, taken);
    if (p.at < 0) return;
    Eight x = load(a + p.first, p.own);
    EightOf<float> values;
    for (int j = 0; j < 8; j++) values.at[j] = j < p.own ? single(x.at[j]) : 0;
    store((float*)(out + 4 * taken) + p.at, 8, values);
}

// Adds the values of a message; a number that is damaged is passed over.
KERNEL spread(T* out, const uint8* message, int64 count, int64 taken) {
    Piece p = mine(message, count, taken);
    if (p.at < 0) return;
    Eight x = load(out + p.first, p.own);
    EightOf<float> values = load((const float*)(message + 4 * taken) + p.at, 8);
    for (int j = 0; j < 8; j++) x.at[j] = plus(x.at[j], values.at[j]);
    store(out + p.first, p.own, x);
}
