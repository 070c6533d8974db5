// What error feedback does before and after an all-reduce, as feedback.py has it: with tensors of T, whose residuals are
// of a type W, as one vector.
//
// A block of threads works on a tile of one tensor, eight neighbouring values to each thread.

constexpr int THREADS = 256, TILE = 8 * THREADS;

struct Tensor {
    const T* x;
    W* residual;
    T* out;
    int64 first;  // of its values in the vector
    int64 count;
    int64 tile;  // the first of its tiles
};

struct Part {
    Tensor of;
    int64 number;  // of the tensor
    int64 i;       // of the thread's first value in it
    int own;       // how many of its eight values there are

    Part(const Tensor* tensors, int64 many) {
        number = 0;
        for (int64 end = many; end - number > 1;) {
            int64 middle = (number + end) / 2;
            (tensors[middle].tile <= blockIdx.x ? number : end) = middle;
        }
        of = tensors[number];
        i = (blockIdx.x - of.tile) * TILE + 8 * threadIdx.x;
        int64 left = of.count - i;
        own = left < 0 ? 0 : left > 8 ? 8 : left;
    }
};

// The value as a W, and of what is no number, plus something, the bits that a processor gives.
template <class E> W wide(E x) {
    if constexpr (sizeof(E) == 8)
        return x;
    else
        return single(x);
}
float quiet(float x) { return __uint_as_float(__float_as_uint(x) | 0x00400000); }
double quiet(double x) { return __longlong_as_double(__double_as_longlong(x) | 1LL << 51); }

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

// values = tensors plus residuals
KERNEL wanted(W* values, const Tensor* tensors, int64 many) {
    Part part(tensors, many);
    Eight x = load(part.of.x + part.i, part.own);
    EightOf<W> y = load(part.of.residual + part.i, part.own);
    for (int j = 0; j < 8; j++) {
        W value = wide(x.at[j]);
        y.at[j] = value == value ? value + y.at[j] : quiet(value);
    }
    store(values + part.of.first + part.i, part.own, y);
}

// Results = the total, rounded, for which one rank answers; and for each tensor whether what is lost is odd: not finite.
KERNEL finish(const W* total, W* lost, uint64* odd, const Tensor* tensors, int64 many, int64 answers) {
    Part part(tensors, many);
    int64 place = part.of.first + part.i;
    EightOf<W> sum = load(total + place, part.own), rest = load(lost + place, part.own);
    Eight result;
    bool rounds = sizeof(T) < sizeof(W) && answers, bad = false;
    for (int j = 0; j < 8; j++) {
        result.at[j] = As<T>::narrow(sum.at[j]);
        if (rounds) rest.at[j] += sum.at[j] - widen(result.at[j]);
        bad |= rest.at[j] - rest.at[j] != 0;
    }
    if ((const void*)part.of.out != total) store(part.of.out + part.i, part.own, result);
    if (rounds) store(lost + place, part.own, rest);
    if (bad) odd[part.number] = 1;
}

// Residuals = what is lost, unless it is odd.
KERNEL keep(const W* lost, const uint64* odd, const Tensor* tensors, int64 many) {
    Part part(tensors, many);
    if (!odd[part.number]) store(part.of.residual + part.i, part.own, load(lost + part.of.first + part.i, part.own));
}
