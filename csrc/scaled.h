// Numbers with an exponent of their own.
//
// A probability on the lattice is kept as mantissa · 2^exponent in two arrays, so that nothing underflows however
// sharp the model is: sums align the exponents, products add them, and no logarithm is taken until the end. Every
// function here is branch-free and inlines into loops that the compiler vectorises.
#pragma once

#include <cstdint>
#include <cstring>

namespace wildctc {

template <class R>
struct Format;

template <>
struct Format<float> {
    using Int = int32_t;
    using Unsigned = uint32_t;
    static constexpr int mantissa_bits = 23;
    static constexpr Int bias = 127;
    static constexpr Int negligible = 100;          // a term 2^-100 below its sum is far under the last bit
    static constexpr Int zero = -(Int{1} << 29);    // the exponent of 0; three of them still fit an Int
    static constexpr float lowest = -2.0e6f;        // a log-probability under this is impossible (float64: 0 as well)
    static constexpr float exp_lowest = -86.0f;     // exp() of less is 0
    static constexpr float round_magic = 12582912.0f;          // 1.5 · 2^23: adding it rounds to an integer
    static constexpr float log2_e = 1.44269504f;
    static constexpr float ln2_high = 0.693359375f;            // 9 bits: n · ln2_high is exact for |n| < 2^15
    static constexpr float ln2_low = -2.12194440e-4f;
};

template <>
struct Format<double> {
    using Int = int64_t;
    using Unsigned = uint64_t;
    static constexpr int mantissa_bits = 52;
    static constexpr Int bias = 1023;
    static constexpr Int negligible = 900;
    static constexpr Int zero = -(Int{1} << 60);
    static constexpr double lowest = -1.0e12;
    static constexpr double exp_lowest = -707.0;
    static constexpr double round_magic = 6755399441055744.0;  // 1.5 · 2^52
    static constexpr double log2_e = 1.4426950408889634074;
    static constexpr double ln2_high = 0.693147180369123816490;  // 33 bits
    static constexpr double ln2_low = 1.90821492927058770002e-10;
};

template <class R>
using Int = typename Format<R>::Int;

template <class R>
static inline Int<R> bits_of(R x) {
    Int<R> i;
    std::memcpy(&i, &x, sizeof x);
    return i;
}

template <class R>
static inline R from_bits(Int<R> i) {
    R x;
    std::memcpy(&x, &i, sizeof x);
    return x;
}

template <class T>
static inline T larger(T a, T b) {
    return a > b ? a : b;
}

template <class R>
static inline Int<R> to_exponent_field(Int<R> e) {
    return static_cast<Int<R>>(static_cast<typename Format<R>::Unsigned>(e) << Format<R>::mantissa_bits);
}

template <class R>
struct Scaled {
    R m;       // positive and near 1; 0 is any mantissa with the exponent Format<R>::zero
    Int<R> e;
};

template <class R>
static inline Scaled<R> operator*(Scaled<R> a, Scaled<R> b) {
    return {a.m * b.m, a.e + b.e};
}

// m · 2^down for down <= 0, a term so small that it cannot matter becoming merely very small
template <class R>
static inline R lowered(R m, Int<R> down) {
    return from_bits<R>(bits_of(m) + to_exponent_field<R>(larger<Int<R>>(down, -Format<R>::negligible)));
}

template <class R>
static inline Scaled<R> operator+(Scaled<R> a, Scaled<R> b) {
    const Int<R> e = larger(a.e, b.e);
    return {lowered<R>(a.m, a.e - e) + lowered<R>(b.m, b.e - e), e};
}

// The same number with its mantissa in [1, 2); what is below every exponent stays 0.
template <class R>
static inline Scaled<R> normalised(Scaled<R> a) {
    const Int<R> bits = bits_of(a.m);
    const Int<R> shift = (bits >> Format<R>::mantissa_bits) - Format<R>::bias;
    return {from_bits<R>(bits - to_exponent_field<R>(shift)), larger<Int<R>>(a.e + shift, Format<R>::zero)};
}

// The plain number, for one that is at most about 1: really 0 when it is negligible.
template <class R>
static inline R plain(Scaled<R> a) {
    const R x = from_bits<R>(bits_of(a.m) + to_exponent_field<R>(larger<Int<R>>(a.e, -Format<R>::negligible)));
    return a.e < -Format<R>::negligible ? R(0) : x;
}

// A zero has lost its mantissa's meaning but kept an exponent below half of Format::zero.
template <class R>
static inline bool is_zero(Scaled<R> a) {
    return a.e < Format<R>::zero / 2;
}

// e^r for |r| <= ln(2)/2 by its Taylor series; the first term left out is below 5e-9 (float), 5e-18 (double)
static inline float exp_reduced(float r) {
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    return p * r + 1.0f;
}

static inline double exp_reduced(double r) {
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    return p * r + 1.0;
}

// e^x, with mantissa in [0.7, 1.5]; 0 for x under Format::lowest, −inf among them
template <class R>
static inline Scaled<R> scaled_exp(R x) {
    using F = Format<R>;
    const R clamped = larger(x, F::lowest);
    const R shifted = clamped * F::log2_e + F::round_magic;
    const R n = shifted - F::round_magic;
    const R r = (clamped - n * F::ln2_high) - n * F::ln2_low;
    const Int<R> e = bits_of(shifted) - bits_of(F::round_magic);
    return {exp_reduced(r), x > F::lowest ? e : F::zero};
}

// e^x for x <= 0 as a plain number
template <class R>
static inline R exp_nonpositive(R x) {
    using F = Format<R>;
    const R clamped = larger(x, F::exp_lowest);
    const R shifted = clamped * F::log2_e + F::round_magic;
    const R n = shifted - F::round_magic;
    const R r = (clamped - n * F::ln2_high) - n * F::ln2_low;
    const Int<R> e = bits_of(shifted) - bits_of(F::round_magic);
    const R y = from_bits<R>(bits_of(exp_reduced(r)) + to_exponent_field<R>(e));
    return x < F::exp_lowest ? R(0) : y;
}

}  // namespace wildctc
