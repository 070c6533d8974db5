// The values of largest magnitude and where they are, as selection.py and sparse.py find them: by their digits, from
// the highest, then in the order of the array, so that of equal ones the first are taken.
//
// Every block of threads works on a stretch of the array, tile by tile. What blocks tell each other is in a Search.

constexpr int THREADS = 512, TILE = 8 * THREADS, WARPS = THREADS / 32, MOST_BLOCKS = 1024, BINS = 2048;

struct Search {
    uint64 prefix;  // the digits that are known of the least magnitude that is taken
    uint64 wanted;  // how many are taken of those with these digits
    uint64 table[BINS];
    uint64 counts[MOST_BLOCKS][2];  // of each block: magnitudes above the least one, and equal to it
};

struct Stretch {
    int64 first, last;

    Stretch(int64 count) {
        int64 tiles = (count + TILE - 1) / TILE, each = (tiles + gridDim.x - 1) / gridDim.x;
        first = blockIdx.x * each * TILE;
        last = first + each * TILE < count ? first + each * TILE : count;
    }
};

// Magnitudes of eight values, and how many of them there are.
struct Keys {
    Eight x;
    uint32 at[8];
    int own;

    Keys(const T* a, int64 first, int64 last) {
        int64 left = last - first;
        own = left > 8 ? 8 : left > 0 ? left : 0;
        x = load(a + first, own);
        for (int j = 0; j < 8; j++) at[j] = magnitude(single(x.at[j]));
    }
    // How many are above a magnitude, and, in the upper half, how many are equal to it.
    uint32 above(uint64 least) const {
        uint32 found = 0;
        for (int j = 0; j < 8; j++)
            if (j < own) found += (at[j] > least) + ((uint32)(at[j] == least) << 16);
        return found;
    }
};

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

KERNEL begin(Search* search, uint64 prefix, uint64 wanted) {
    if (threadIdx.x == 0) {
        search->prefix = prefix;
        search->wanted = wanted;
    }
    for (int i = threadIdx.x; i < BINS; i += THREADS) search->table[i] = 0;
}

// Counts the next digits, of so many bits, of magnitudes that begin with the known ones; of every stride-th value.
KERNEL tally(Search* search, const T* a, int64 count, int64 stride, int64 shift, int64 width) {
    __shared__ uint32 bins[4][BINS];  // four, for neighbours often have the same digit
    for (int i = threadIdx.x; i < 4 * BINS; i += THREADS) bins[i / BINS][i % BINS] = 0;
    __syncthreads();
    uint64 prefix = search->prefix;
    auto note = [=](uint32 key) {
        if (key >> (shift + width) == prefix)
            atomicAdd(&bins[threadIdx.x % 4][key >> shift & ((1u << width) - 1)], 1u);
    };
    if (stride == 1) {
        Stretch mine(count);
        for (int64 start = mine.first; start < mine.last; start += TILE) {
            Keys keys(a, start + 8 * threadIdx.x, mine.last);
            for (int j = 0; j < 8; j++)
                if (j < keys.own) note(keys.at[j]);
        }
    } else {
        int64 i = (int64)blockIdx.x * THREADS + threadIdx.x;
        for (; i * stride < count; i += (int64)gridDim.x * THREADS) note(magnitude(single(a[i * stride])));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += THREADS) {
        uint32 sum = bins[0][i] + bins[1][i] + bins[2][i] + bins[3][i];
        if (sum) atomicAdd(&search->table[i], (uint64)sum);
    }
}

// Finds the next digits of the least magnitude that is taken, in one block.
KERNEL settle(Search* search, int64 width) {
    __shared__ uint64 bins[BINS], groups[BINS / 32];
    for (int i = threadIdx.x; i < BINS; i += THREADS) {
        bins[i] = search->table[i];
        search->table[i] = 0;
    }
    __syncthreads();
    if (threadIdx.x < BINS / 32) {
        groups[threadIdx.x] = 0;
        for (int i = 0; i < 32; i++) groups[threadIdx.x] += bins[32 * threadIdx.x + i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint64 wanted = search->wanted;
        int group = BINS / 32 - 1;
        for (; group && groups[group] < wanted; group--) wanted -= groups[group];
        int digit = 32 * group + 31;
        for (; digit % 32 && bins[digit] < wanted; digit--) wanted -= bins[digit];
        search->prefix = search->prefix << width | digit;
        search->wanted = wanted;
    }
}

// Counts, in every block, what is above the least magnitude, and what is equal to it.
KERNEL mark(Search* search, const T* a, int64 count) {
    __shared__ uint64 totals[2];
    if (threadIdx.x < 2) totals[threadIdx.x] = 0;
    __syncthreads();
    Stretch mine(count);
    uint64 least = search->prefix, above = 0, equal = 0;
    for (int64 start = mine.first; start < mine.last; start += TILE) {
        uint32 found = Keys(a, start + 8 * threadIdx.x, mine.last).above(least);
        above += found & 0xFFFF;
        equal += found >> 16;
    }
    if (above) atomicAdd(&totals[0], above);
    if (equal) atomicAdd(&totals[1], equal);
    __syncthreads();
    if (threadIdx.x < 2) search->counts[blockIdx.x][threadIdx.x] = totals[threadIdx.x];
}

// Of every thread's number, the sum of those before; `total` is the sum of all. The halves of a number are apart.
uint32 sum_before(uint32 x, uint32& total) {
    __shared__ uint32 warps[WARPS];
    uint32 sum = x, lane = threadIdx.x % 32, before = 0;
    for (int far = 1; far < 32; far *= 2) {
        uint32 y = __shfl_up_sync(~0u, sum, far);
        if (lane >= far) sum += y;
    }
    __syncthreads();
    if (lane == 31) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    total = 0;
    for (int warp = 0; warp < WARPS; warp++) {
        if (warp < threadIdx.x / 32) before += warps[warp];
        total += warps[warp];
    }
    return before + sum - x;
}

// Writes the indices, of 4 or 8 bytes, and the values of the `taken` that `mark` has counted.
KERNEL gather(const Search* search, const T* a, int64 count, uint8* out, int64 taken, int64 wide) {
    __shared__ uint64 totals[2];
    if (threadIdx.x < 2) totals[threadIdx.x] = 0;
    __syncthreads();
    for (int block = threadIdx.x; block < blockIdx.x; block += THREADS)
        for (int k = 0; k < 2; k++)
            if (search->counts[block][k]) atomicAdd(&totals[k], search->counts[block][k]);
    __syncthreads();
    Stretch mine(count);
    float* values = (float*)(out + taken * (wide ? 8 : 4));
    uint64 least = search->prefix, wanted = search->wanted, above = totals[0], equal = totals[1];
    for (int64 start = mine.first; start < mine.last; start += TILE) {
        int64 first = start + 8 * threadIdx.x;
        Keys keys(a, first, mine.last);
        uint32 total, before = sum_before(keys.above(least), total);
        uint64 larger = above + (before & 0xFFFF), ties = equal + (before >> 16);
        for (int j = 0; j < 8; j++) {
            bool tie = keys.at[j] == least;
            if (j < keys.own && (keys.at[j] > least || (tie && ties < wanted))) {
                int64 place = larger + (ties < wanted ? ties : wanted);
                if (wide)
                    ((uint64*)out)[place] = first + j;
                else
                    ((uint32*)out)[place] = first + j;
                values[place] = single(keys.x.at[j]);
            }
            if (j < keys.own) larger += keys.at[j] > least, ties += tie;
        }
        above += total & 0xFFFF;
        equal += total >> 16;
    }
}

// out = zeros, or the values at `a`.
KERNEL start(T* out, const T* a, int64 count) {
    Eight x;
    for (int j = 0; j < 8; j++) x.at[j] = As<T>::narrow(0);
    for (int64 i = ((int64)blockIdx.x * THREADS + threadIdx.x) * 8; i < count; i += (int64)gridDim.x * TILE) {
        int own = count - i > 8 ? 8 : count - i;
        store(out + i, own, a ? load(a + i, own) : x);
    }
}

// Calls f with every index of a message and its value; an index that is damaged is passed over.
template <class F> void each(const uint8* message, int64 taken, int64 count, int64 wide, F f) {
    const float* values = (const float*)(message + taken * (wide ? 8 : 4));
    for (int64 k = (int64)blockIdx.x * THREADS + threadIdx.x; k < taken; k += (int64)gridDim.x * THREADS) {
        uint64 i = wide ? ((const uint64*)message)[k] : ((const uint32*)message)[k];
        if (i < (uint64)count) f(i, values[k]);
    }
}

// Adds the values of a message, or takes them away.
KERNEL scatter(T* out, const uint8* message, int64 taken, int64 count, int64 wide) {
    each(message, taken, count, wide, [=](uint64 i, float value) { out[i] = plus(out[i], value); });
}
KERNEL take(T* out, const uint8* message, int64 taken, int64 count, int64 wide) {
    each(message, taken, count, wide, [=](uint64 i, float value) { out[i] = minus(out[i], value); });
}
