// Whole numbers on a grid that all ranks share, as thc.py has them: of a type Code, up to LEVELS to either side.
//
// A block of values belongs to a team of threads, see values.cu.

struct Part {
    Member me;
    int64 block, first;  // values before the team's, and before the thread's

    Part(int64 count) {
        int64 number = (int64)blockIdx.x * TEAMS + threadIdx.x / TEAM, left = count - number * BLOCK;
        block = number * BLOCK;
        me.place = threadIdx.x % TEAM;
        me.count = left < 0 ? 0 : left > BLOCK ? BLOCK : left;
        int own = me.count - 8 * me.place;
        me.own = own < 0 ? 0 : own > 8 ? 8 : own;
        first = block + 8 * me.place;
    }
    // Of the largest magnitude of all ranks.
    float step(const float* peaks) const {
        float size = me.own ? peaks[block / BLOCK] / LEVELS : 0;
        return size < 0x1p-126f ? 0 : size;
    }
};

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

// out = the largest magnitude of every block, NaN if one is not finite.
KERNEL peaks(float* out, const T* a, int64 count) {
    Part part(count);
    Eight x = load(a + part.first, part.me.own);
    float values[8];
    for (int j = 0; j < 8; j++) values[j] = (float)widen(x.at[j]);
    uint32 top = peak(values);
    if (part.me.own && part.me.place == 0)
        out[part.block / BLOCK] = __uint_as_float(top < INFINITE ? top : 0x7FC00000);
}

// out = the values at `a` in steps, rounded at random.
KERNEL quantise(Code* out, const T* a, const float* peaks, int64 index, int64 count, uint64 stream) {
    Part part(count);
    Eight x = load(a + part.first, part.me.own);
    EightOf<Code> codes;
    float step = part.step(peaks), inverse = 1 / step;
    uint64 key = noise_key(stream, index + part.block);
    for (int j = 0; j < 8; j++) {
        int q = nearest((float)widen(x.at[j]) * inverse + noise(key, 8 * part.me.place + j)) - nearest(0);
        q = q < -LEVELS ? -LEVELS : q > LEVELS ? LEVELS : q;
        codes.at[j] = step > 0 ? q : 0;
    }
    store(out + part.first, part.me.own, codes);
}

// out = a sum of codes times the steps.
KERNEL restore(T* out, const Code* sums, const float* peaks, int64 count) {
    Part part(count);
    EightOf<Code> codes = load(sums + part.first, part.me.own);
    float step = part.step(peaks);
    Eight x;
    for (int j = 0; j < 8; j++) x.at[j] = As<T>::narrow((float)codes.at[j] * step);
    store_together(out + part.first, part.me.own, x);
}
