// Elements of a type T as values, as arrays.py has them: read and written eight at a time.

// Bits of a float from which on it is no number.
constexpr uint32 INFINITE = 0x7F800000;
constexpr float LARGEST = 0x1.fffffep127f;

template <class E> struct alignas(sizeof(E) > 1 ? 16 : 8) EightOf { E at[8]; };
typedef EightOf<T> Eight;

uint32 magnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFF; }

// The value, or the largest finite one of a type if it is finite, too, but larger.
float within(float x, float top) {
    bool finite = magnitude(x) < INFINITE;
    return finite && x > top ? top : finite && x < -top ? -top : x;
}

// Eight values; zeros where there are none.
template <class E> EightOf<E> load(const E* from, int own) {
    if (own == 8 && (uint64)from % alignof(EightOf<E>) == 0) return *(const EightOf<E>*)from;
    EightOf<E> x;
    for (int j = 0; j < 8; j++) x.at[j] = j < own ? from[j] : As<E>::narrow(0);
    return x;
}
template <class E> void store(E* to, int own, EightOf<E> x) {
    if (own == 8 && (uint64)to % alignof(EightOf<E>) == 0)
        *(EightOf<E>*)to = x;
    else
        for (int j = 0; j < 8; j++)  // with fixed ends, or the values would be in memory and not in registers
            if (j < own) to[j] = x.at[j];
}

// The same by all threads of a warp. Memory is written in runs of 32 bytes: where a thread has just as many, neighbours
// swap halves, so that both write one half of a run, then of the other.
template <class E, class X> void store_together(E* to, int own, X& x) {
    if constexpr (sizeof(E) == 4) {
        struct alignas(16) Four { E at[4]; } first, second;
        bool odd = threadIdx.x % 2, whole = own + __shfl_xor_sync(~0u, own, 1) == 16 && (uint64)to % 16 == 0;
        for (int j = 0; j < 4; j++) {
            E theirs = __shfl_xor_sync(~0u, odd ? x.at[j] : x.at[j + 4], 1);
            first.at[j] = odd ? theirs : x.at[j];
            second.at[j] = odd ? x.at[j + 4] : theirs;
        }
        if (whole) {
            *(Four*)(odd ? to - 4 : to) = first;
            *(Four*)(odd ? to + 4 : to + 8) = second;
            return;
        }
    }
    store(to, own, x);
}

// The value as a float; of what is no number with the bits that a processor's conversion gives, a GPU's drops them.
float single(float x) { return x; }
float single(double x) {
    uint64 bits = __double_as_longlong(x);
    return x == x ? (float)x : __uint_as_float((uint32)(bits >> 32 & 0x80000000) | 0x7FC00000 | (bits >> 29 & 0x3FFFFF));
}
float single(BFloat16 x) { return widen(x); }
float single(Half x) {
    uint32 size = x.bits & 0x7FFF;
    return size > 0x7C00 ? __uint_as_float((uint32)(x.bits & 0x8000) << 16 | 0x7FC00000 | size << 13) : widen(x);
}

// The element for a decoded value.
T rounded(float x) { return As<T>::narrow(within(x, TOP)); }

// The element plus a decoded value, which is rounded first, so that to decode, then to add, is the same.
T plus(T x, float value) { return As<T>::narrow(Sum()(widen(x), widen(rounded(value)))); }

// The element less a decoded value, which is rounded first: what a message lacks.
T minus(T x, float value) { return As<T>::narrow(widen(x) - widen(rounded(value))); }
