// out = a op b for elements of a type T, and what else reductions.py has; out may be a or b.
//
// Elements are read and written 16 bytes at a time between boundaries that all addresses share, else one by one.

constexpr int RUN = 16 / sizeof(T);
constexpr int64 NEVER = 1LL << 62;

template <int N> struct alignas(N == 1 ? alignof(T) : 16) Run { T at[N]; };
template <int N> struct Width { static constexpr int value = N; };

template <int N> Run<N> load(const T* from, Width<N>) { return *(const Run<N>*)from; }
template <int N> void store(T* to, Run<N> run) { *(Run<N>*)to = run; }

// How many elements precede the first boundary.
inline int64 before(const T* array) {
    uint64 past = (uint64)array % 16;
    return past % sizeof(T) ? NEVER : (16 - past) % 16 / sizeof(T);
}
inline int64 before(const T* a, const T* b) { return before(a) == before(b) ? before(a) : NEVER; }
inline int64 before(const T* a, const T* b, const T* c) {
    return before(a) == before(b) ? before(b, c) : NEVER;
}

// Calls f with the first index and the width of every run.
template <class F> void each(int64 head, int64 count, F f) {
    int64 first = (int64)blockIdx.x * blockDim.x + threadIdx.x, threads = (int64)gridDim.x * blockDim.x;
    head = head < count ? head : count;
    int64 middle = (count - head) / RUN * RUN;
    for (int64 i = first * RUN; i < middle; i += threads * RUN) f(head + i, Width<RUN>());
    for (int64 i = first; i < count - middle; i += threads) f(i < head ? i : i + middle, Width<1>());
}

template <class F> void reduce(T* out, const T* a, const T* b, int64 count, F f) {
    each(before(out, a, b), count, [=](int64 i, auto width) {
        auto x = load(a + i, width), y = load(b + i, width);
        for (int j = 0; j < width.value; j++) x.at[j] = As<T>::narrow(f(widen(x.at[j]), widen(y.at[j])));
        store(out + i, x);
    });
}

// out = also = the reduction of `size` parts, in order, finished by g and rounded once.
template <class F, class G>
void fuse(T* out, const T* const* parts, int64 size, int64 count, T* also, F f, G g) {
    int64 head = before(out, also ? also : out);
    for (int64 part = 0; part < size; part++) head = before(parts[part]) == head ? head : NEVER;
    each(head, count, [=](int64 i, auto width) {
        auto x = load(parts[0] + i, width);
        decltype(widen(x.at[0])) total[width.value];
        for (int j = 0; j < width.value; j++) total[j] = widen(x.at[j]);
#pragma unroll 1
        for (int64 part = 1; part < size; part++) {
            auto y = load(parts[part] + i, width);
            for (int j = 0; j < width.value; j++) total[j] = f(total[j], widen(y.at[j]));
        }
        for (int j = 0; j < width.value; j++) x.at[j] = As<T>::narrow(g(total[j]));
        store(out + i, x);
        if (also) store(also + i, x);
    });
}

struct Same {
    template <class N> N operator()(N x) const { return x; }
};
struct Mean {
    int64 size;
    template <class N> N operator()(N x) const { return quotient(x, size); }
};

#define REDUCTION(name, F)                                                                                            \
    extern "C" __global__ void reduce_##name(T* out, const T* a, const T* b, int64 count) {                           \
        reduce(out, a, b, count, F());                                                                                \
    }                                                                                                                 \
    extern "C" __global__ void fused_##name(T* out, const T* const* parts, int64 size, int64 count, T* also) {        \
        fuse(out, parts, size, count, also, F(), Same());                                                             \
    }

REDUCTION(prod, Product)

#if !COMPLEX  // whose sums are those of its parts
REDUCTION(sum, Sum)
REDUCTION(min, Least)
REDUCTION(max, Greatest)

extern "C" __global__ void fused_avg(T* out, const T* const* parts, int64 size, int64 count, T* also) {
    fuse(out, parts, size, count, also, Sum(), Mean{size});
}

extern "C" __global__ void divide(T* out, const T* a, int64 divisor, int64 count) {
    each(before(out, a), count, [=](int64 i, auto width) {
        auto x = load(a + i, width);
        for (int j = 0; j < width.value; j++) x.at[j] = As<T>::narrow(quotient(widen(x.at[j]), divisor));
        store(out + i, x);
    });
}
#endif

#if INTEGER
REDUCTION(land, All)
REDUCTION(lor, Any)
REDUCTION(lxor, Odd)
REDUCTION(band, And)
REDUCTION(bor, Or)
REDUCTION(bxor, Xor)
#elif !COMPLEX
// out = a - b
extern "C" __global__ void difference(T* out, const T* a, const T* b, int64 count) {
    each(before(out, a, b), count, [=](int64 i, auto width) {
        auto x = load(a + i, width), y = load(b + i, width);
        for (int j = 0; j < width.value; j++)
            x.at[j] = As<T>::narrow(widen(x.at[j]) - widen(y.at[j]));
        store(out + i, x);
    });
}
#endif
