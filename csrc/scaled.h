// Numbers with an exponent of their own.
//
// A probability on the lattice is kept as mantissa · 2^exponent, each in its own array, so that nothing underflows
// however sharp the model is: sums align the exponents, products add them, and no logarithm is taken until the end.
// Every function here is branch-free and works on one number (V = float, double) or on a vector of them.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__GNUC__)
#define WILDCTC_INLINE static inline __attribute__((always_inline))
#else
#define WILDCTC_INLINE static inline
#endif

namespace wildctc {

// The types of V's shape.
template <class V>
struct Types;

template <>
struct Types<float> {
    using Real = float;
    using Int = int32_t;
    using Unsigned = uint32_t;
};

template <>
struct Types<double> {
    using Real = double;
    using Int = int64_t;
    using Unsigned = uint64_t;
};

template <class V>
using Real = typename Types<V>::Real;
template <class V>
using Int = typename Types<V>::Int;
template <class V>
using Unsigned = typename Types<V>::Unsigned;

template <class R>
struct Format;

template <>
struct Format<float> {
    static constexpr int mantissa_bits = 23;
    static constexpr int32_t bias = 127;
    static constexpr int32_t negligible = 100;           // a term 2^-100 below its sum is far under the last bit
    static constexpr int32_t zero = -(int32_t{1} << 27);  // the exponent of 0: a frame may add it twice, see kSettle
    static constexpr float irrelevant = 0x1p-60f;        // a posterior that cannot be seen in a gradient
    static constexpr float lowest = -2.0e6f;             // a log-probability under this counts as impossible
    static constexpr float exp_lowest = -86.0f;          // exp() of less is 0
    static constexpr float round_magic = 12582912.0f;    // 1.5 · 2^23: adding it rounds to an integer
    static constexpr float log2_e = 1.44269504f;
    static constexpr float ln2_high = 0.693359375f;      // 9 bits: n · ln2_high is exact for |n| < 2^15
    static constexpr float ln2_low = -2.12194440e-4f;
};

template <>
struct Format<double> {
    static constexpr int mantissa_bits = 52;
    static constexpr int64_t bias = 1023;
    static constexpr int64_t negligible = 900;
    static constexpr int64_t zero = -(int64_t{1} << 59);
    static constexpr double irrelevant = 0x1p-110;
    static constexpr double lowest = -1.0e12;
    static constexpr double exp_lowest = -707.0;
    static constexpr double round_magic = 6755399441055744.0;    // 1.5 · 2^52
    static constexpr double log2_e = 1.4426950408889634074;
    static constexpr double ln2_high = 0.693147180369123816490;  // 33 bits
    static constexpr double ln2_low = 1.90821492927058770002e-10;
};

template <class V>
using FormatOf = Format<Real<V>>;

template <class To, class From>
WILDCTC_INLINE To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class V>
WILDCTC_INLINE Int<V> bits_of(V x) {
    return same_bits<Int<V>>(x);
}

// The same number in every lane; of a scalar type, the number itself.
template <class V, class T>
WILDCTC_INLINE V splat(T x) {
    return V{} + x;
}

template <class V>
WILDCTC_INLINE V larger(V a, V b) {
    return a > b ? a : b;
}

template <class V>
WILDCTC_INLINE Int<V> to_exponent_field(Int<V> e) {
    return same_bits<Int<V>>(same_bits<Unsigned<V>>(e) << FormatOf<V>::mantissa_bits);
}

template <class V>
struct Scaled {
    V m;       // positive; 0 is any mantissa with the exponent Format::zero
    Int<V> e;
};

template <class V>
WILDCTC_INLINE Scaled<V> operator*(Scaled<V> a, Scaled<V> b) {
    return {a.m * b.m, a.e + b.e};
}

// 2^e in the float format, for e in its range
template <class V>
WILDCTC_INLINE V power_of_two(Int<V> biased) {
    return same_bits<V>(to_exponent_field<V>(biased));
}

// Sums align their terms to the largest exponent; a term far below it becomes negligible, never subnormal.
template <class V>
WILDCTC_INLINE Scaled<V> sum(Scaled<V> a, Scaled<V> b) {
    const Int<V> e = larger(a.e, b.e), base = e - FormatOf<V>::bias;
    const Int<V> least = splat<Int<V>>(FormatOf<V>::bias - FormatOf<V>::negligible);
    return {a.m * power_of_two<V>(larger(a.e - base, least)) + b.m * power_of_two<V>(larger(b.e - base, least)), e};
}

template <class V>
WILDCTC_INLINE Scaled<V> sum(Scaled<V> a, Scaled<V> b, Scaled<V> c) {
    const Int<V> e = larger(larger(a.e, b.e), c.e), base = e - FormatOf<V>::bias;
    const Int<V> least = splat<Int<V>>(FormatOf<V>::bias - FormatOf<V>::negligible);
    return {a.m * power_of_two<V>(larger(a.e - base, least)) + b.m * power_of_two<V>(larger(b.e - base, least)) +
                c.m * power_of_two<V>(larger(c.e - base, least)), e};
}

template <class V>
WILDCTC_INLINE Scaled<V> sum(Scaled<V> a, Scaled<V> b, Scaled<V> c, Scaled<V> d) {
    const Int<V> e = larger(larger(a.e, b.e), larger(c.e, d.e)), base = e - FormatOf<V>::bias;
    const Int<V> least = splat<Int<V>>(FormatOf<V>::bias - FormatOf<V>::negligible);
    return {(a.m * power_of_two<V>(larger(a.e - base, least)) + b.m * power_of_two<V>(larger(b.e - base, least))) +
                (c.m * power_of_two<V>(larger(c.e - base, least)) + d.m * power_of_two<V>(larger(d.e - base, least))), e};
}

// Plain numbers take part in the same expressions.
template <class V>
WILDCTC_INLINE V sum(V a, V b) {
    return a + b;
}

template <class V>
WILDCTC_INLINE V sum(V a, V b, V c) {
    return (a + b) + c;
}

template <class V>
WILDCTC_INLINE V sum(V a, V b, V c, V d) {
    return (a + b) + (c + d);
}

// The same number with its mantissa in [1, 2).
template <class V>
WILDCTC_INLINE Scaled<V> with_mantissa_near_one(Scaled<V> a) {
    const Int<V> bits = bits_of(a.m);
    const Int<V> shift = (bits >> FormatOf<V>::mantissa_bits) - FormatOf<V>::bias;
    return {same_bits<V>(bits - to_exponent_field<V>(shift)), a.e + shift};
}

// ... and an exponent not below that of 0
template <class V>
WILDCTC_INLINE Scaled<V> normalised(Scaled<V> a) {
    const Scaled<V> x = with_mantissa_near_one(a);
    return {x.m, larger(x.e, splat<Int<V>>(FormatOf<V>::zero))};
}

template <class V>
WILDCTC_INLINE V normalised(V x) {
    return x;
}

// The plain number, for one that is at most about 1; 0 when it is below the format's range.
template <class V>
WILDCTC_INLINE V plain(Scaled<V> a) {
    const Int<V> bits = bits_of(a.m);
    const Int<V> field = (bits >> FormatOf<V>::mantissa_bits) + a.e;
    const V x = same_bits<V>(same_bits<Int<V>>(same_bits<Unsigned<V>>(bits) + same_bits<Unsigned<V>>(to_exponent_field<V>(a.e))));
    return field > 0 ? x : V{};
}

template <class V>
WILDCTC_INLINE V plain(V x) {
    return x;
}

// The mantissa of a 0 has no meaning, but its exponent stays below half of Format::zero.
template <class R>
WILDCTC_INLINE bool is_zero(Scaled<R> a) {
    return a.e < Format<R>::zero / 2;
}

// e^r for |r| <= ln(2)/2 by its Taylor series: the first omitted term is below 6e-9 (float), 5e-18 (double). Terms are
// paired, so that fewer products depend on each other.
template <class V>
WILDCTC_INLINE V exp_reduced(V r) {
    using R = Real<V>;
    const V r2 = r * r;
    const V p01 = r + R(1), p23 = r * R(1.0 / 6) + R(1.0 / 2), p45 = r * R(1.0 / 120) + R(1.0 / 24);
    V p67 = r * R(1.0 / 5040) + R(1.0 / 720);
    if (sizeof(R) == sizeof(double)) {
        const V p89 = r * R(1.0 / 362880) + R(1.0 / 40320);
        const V p10 = r * R(1.0 / 39916800) + R(1.0 / 3628800), p12 = r * R(1.0 / 6227020800.0) + R(1.0 / 479001600);
        p67 = p67 + r2 * (p89 + r2 * (p10 + r2 * p12));
    }
    return (p01 + r2 * p23) + (r2 * r2) * (p45 + r2 * p67);
}

// e^x as mantissa in [0.7, 1.5] and exponent, for finite x
template <class V>
WILDCTC_INLINE Scaled<V> exp_parts(V x) {
    using F = FormatOf<V>;
    const V shifted = x * F::log2_e + F::round_magic;
    const V n = shifted - F::round_magic;
    const V r = (x - n * F::ln2_high) - n * F::ln2_low;
    return {exp_reduced(r), bits_of(shifted) - bits_of(F::round_magic)};
}

// e^x; 0 for x under Format::lowest, −inf among them
template <class V>
WILDCTC_INLINE Scaled<V> scaled_exp(V x) {
    const V lowest = splat<V>(FormatOf<V>::lowest);
    const Scaled<V> y = exp_parts(larger(x, lowest));
    return {y.m, x > lowest ? y.e : splat<Int<V>>(FormatOf<V>::zero)};
}

// e^x for x <= 0 as a plain number; 0 for x under Format::exp_lowest, −inf among them; NaN for NaN
template <class V>
WILDCTC_INLINE V exp_nonpositive(V x) {
    const V lowest = splat<V>(FormatOf<V>::exp_lowest);
    const V shifted = x * FormatOf<V>::log2_e + FormatOf<V>::round_magic;
    const V n = shifted - FormatOf<V>::round_magic;
    const V y = exp_reduced((x - n * FormatOf<V>::ln2_high) - n * FormatOf<V>::ln2_low);
    const V result = y * power_of_two<V>(bits_of(shifted) - bits_of(FormatOf<V>::round_magic) + FormatOf<V>::bias);
    return x < lowest ? V{} : result;
}

}  // namespace wildctc
