// Elements in memory, numbers to compute with and operations on them: the same bits as elements.py gives on the host.
//
// Half precision is computed in float32. All operations are bitwise commutative: -0 < +0 in min and max, NaN wins
// everywhere, and there is one NaN. To be compiled without contraction of products and sums.

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef long long int64;

struct Half { uint16 bits; };
struct BFloat16 { uint16 bits; };
template <class R> struct Complex { R real, imag; };

template <class N> constexpr bool is_real() { return N(0.5) != N(0); }

// --- numbers from elements, and back ---------------------------------------------------------------

inline float widen(Half x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    uint32 size = x.bits & 0x7FFF, infinite = size >= 0x7C00 ? 0x7F800000 : 0;
    uint32 finite = __float_as_uint(__uint_as_float(size << 13) * 0x1p112f);
    return __uint_as_float(finite | infinite | (uint32)(x.bits & 0x8000) << 16);
#endif
}
inline float widen(BFloat16 x) { return __uint_as_float((uint32)x.bits << 16); }
template <class E> E widen(E x) { return x; }

template <class E> struct As {
    template <class N> static E narrow(N x) { return (E)x; }
};
template <> struct As<Half> {
    static Half narrow(float x) {
#ifdef __CUDA_ARCH__
        uint16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
#else
        uint32 bits = __float_as_uint(x), size = bits & 0x7FFFFFFF;
        uint32 small = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3F000000;
        uint32 normal = (size + 0xC8000FFF + (size >> 13 & 1)) >> 13;
        uint32 y = size >= 0x477FF000 ? 0x7C00 : size < 0x38800000 ? small : normal;
        y |= bits >> 16 & 0x8000;
#endif
        return {(uint16)(x == x ? y : 0x7E00)};  // the instruction's own NaN is another
    }
};
template <> struct As<BFloat16> {
    static BFloat16 narrow(float x) {
        uint32 bits = __float_as_uint(x);
        return {(uint16)(x == x ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FC0)};
    }
};

// --- operations ------------------------------------------------------------------------------------

template <class N> N one_nan(N x) { return x; }
inline float one_nan(float x) { return x == x ? x : __uint_as_float(0x7FC00000); }
inline double one_nan(double x) { return x == x ? x : __longlong_as_double(0x7FF8000000000000); }

// Signed integers wrap around, which C++ allows to unsigned ones only.
template <class N> struct Wrapping { typedef uint64 Type; };
template <> struct Wrapping<float> { typedef float Type; };
template <> struct Wrapping<double> { typedef double Type; };

struct Sum {
    template <class N> N operator()(N a, N b) const {
        typedef typename Wrapping<N>::Type W;
        return one_nan((N)((W)a + (W)b));
    }
};
struct Product {
    template <class N> N operator()(N a, N b) const {
        typedef typename Wrapping<N>::Type W;
        return one_nan((N)((W)a * (W)b));
    }
    template <class R> Complex<R> operator()(Complex<R> a, Complex<R> b) const {
        return {one_nan(a.real * b.real - a.imag * b.imag), one_nan(a.real * b.imag + a.imag * b.real)};
    }
};

inline bool negative(float x) { return __float_as_uint(x) >> 31; }
inline bool negative(double x) { return __double_as_longlong(x) < 0; }
template <class N> bool negative(N x) { return false; }  // there is one zero

struct Least {
    template <class N> N operator()(N a, N b) const {
        return a != a ? one_nan(a) : b != b ? one_nan(b) : a < b || (a == b && negative(a)) ? a : b;
    }
};
struct Greatest {
    template <class N> N operator()(N a, N b) const {
        return a != a ? one_nan(a) : b != b ? one_nan(b) : a > b || (a == b && !negative(a)) ? a : b;
    }
};
struct All { template <class N> N operator()(N a, N b) const { return a && b; } };
struct Any { template <class N> N operator()(N a, N b) const { return a || b; } };
struct Odd { template <class N> N operator()(N a, N b) const { return !a != !b; } };
struct And { template <class N> N operator()(N a, N b) const { return a & b; } };
struct Or { template <class N> N operator()(N a, N b) const { return a | b; } };
struct Xor { template <class N> N operator()(N a, N b) const { return a ^ b; } };

// x / divisor, which is above zero: rounded down for integers.
template <class N> N quotient(N x, int64 divisor) {
    if constexpr (is_real<N>()) {
        return one_nan(x / (N)divisor);
    } else {
        typedef decltype(x + 0) Wide;
        Wide result = x / (Wide)divisor, rest = x % (Wide)divisor;
        if constexpr (N(-1) < N(1)) result -= rest < 0;
        return (N)result;
    }
}
