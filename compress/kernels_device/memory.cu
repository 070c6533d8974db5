// What methods with a memory have in common: tensors of T, what is remembered of them, of a type W, and vectors of W in
// which all tensors lie one after the other.
//
// A block of threads works on a tile of one tensor, eight neighbouring values to each thread.

constexpr int THREADS = 256, TILE = 8 * THREADS;

typedef EightOf<W> Wide;

struct Tensor {
    const T* x;
    W* kept;
    T* out;
    int64 first;  // of its values in a vector
    int64 count;
    int64 tile;  // the first of its tiles
};

struct Part {
    Tensor of;
    int64 number;  // of the tensor
    int64 i;       // of the thread's first value in it, and in a vector
    int64 place;
    int own;  // how many of its eight values there are

    Part(const Tensor* tensors, int64 many) {
        number = 0;
        for (int64 end = many; end - number > 1;) {
            int64 middle = (number + end) / 2;
            (tensors[middle].tile <= blockIdx.x ? number : end) = middle;
        }
        of = tensors[number];
        i = (blockIdx.x - of.tile) * TILE + 8 * threadIdx.x;
        place = of.first + i;
        int64 left = of.count - i;
        own = left < 0 ? 0 : left > 8 ? 8 : left;
    }
};

template <class E> W wide(E x) {
    if constexpr (sizeof(E) == 8)
        return x;
    else
        return single(x);
}

// What is no number, as a processor adds something to it.
float quiet(float x) { return __uint_as_float(__float_as_uint(x) | 0x00400000); }
double quiet(double x) { return __longlong_as_double(__double_as_longlong(x) | 1LL << 51); }

bool finite(W x) { return x - x == 0; }

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

// Tensors that go as one are all odd, if one is.
void all_odd(uint64* odd, int64 many) {
    for (int64 i = 0; i < many; i++) odd[i] = 1;
}

// What is kept of each tensor = the values of a vector, unless they are odd: not all finite.
KERNEL keep(const W* values, const uint64* odd, const Tensor* tensors, int64 many) {
    Part part(tensors, many);
    if (!odd[part.number]) store(part.of.kept + part.i, part.own, load(values + part.place, part.own));
}
