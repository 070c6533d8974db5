// out = a in another type, To from From, rounded to nearest even.

constexpr int RUN = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));

template <class E> struct alignas(RUN * sizeof(E)) Run { E at[RUN]; };

inline To convert(From x) { return As<To>::narrow(widen(x)); }

extern "C" __global__ void cast(To* out, const From* a, int64 count) {
    int64 first = (int64)blockIdx.x * blockDim.x + threadIdx.x, threads = (int64)gridDim.x * blockDim.x;
    bool aligned = (uint64)out % alignof(Run<To>) == 0 && (uint64)a % alignof(Run<From>) == 0;
    int64 runs = aligned ? count / RUN : 0;
    for (int64 k = first; k < runs; k += threads) {
        Run<From> x = ((const Run<From>*)a)[k];
        Run<To> y;
        for (int j = 0; j < RUN; j++) y.at[j] = convert(x.at[j]);
        ((Run<To>*)out)[k] = y;
    }
    for (int64 i = runs * RUN + first; i < count; i += threads) out[i] = convert(a[i]);
}
