// Vectors of numbers: the type for this instruction set, and arrays of scaled numbers read and written by the vector.
// Included by kernel.cpp only, which says what WILDCTC_ISA and WILDCTC_VECTOR_BYTES are.
#pragma once

#include <utility>

#include "scaled.h"

namespace wildctc {

#if defined(WILDCTC_VECTOR_BYTES)
using FloatVector __attribute__((vector_size(WILDCTC_VECTOR_BYTES))) = float;
using DoubleVector __attribute__((vector_size(WILDCTC_VECTOR_BYTES))) = double;

template <>
struct Types<FloatVector> {
    using Real = float;
    using Int __attribute__((vector_size(WILDCTC_VECTOR_BYTES))) = int32_t;
    using Unsigned __attribute__((vector_size(WILDCTC_VECTOR_BYTES))) = uint32_t;
};

template <>
struct Types<DoubleVector> {
    using Real = double;
    using Int __attribute__((vector_size(WILDCTC_VECTOR_BYTES))) = int64_t;
    using Unsigned __attribute__((vector_size(WILDCTC_VECTOR_BYTES))) = uint64_t;
};
#endif

namespace WILDCTC_ISA {
namespace {

// The vector of a number; without vector extensions, the number itself.
template <class R>
struct VectorOf {
    using type = R;
};

#if defined(WILDCTC_VECTOR_BYTES)
template <>
struct VectorOf<float> {
    using type = FloatVector;
};

template <>
struct VectorOf<double> {
    using type = DoubleVector;
};
#endif

template <class R>
using Vector = typename VectorOf<R>::type;
template <class R>
constexpr int64_t kWidth = sizeof(Vector<R>) / sizeof(R);

// the least multiple of the vector width that is not below count
template <class R>
WILDCTC_INLINE int64_t whole_vectors(int64_t count) {
    return (count + kWidth<R> - 1) / kWidth<R> * kWidth<R>;
}

template <class V, class T>
WILDCTC_INLINE V load(const T* from) {
    V x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

template <class V, class T>
WILDCTC_INLINE void store(T* to, V x) {
    std::memcpy(to, &x, sizeof x);
}

// lane by lane, which is faster than the hardware's gather (1.4× over the whole loss) and than a copy through memory
template <class V, class T>
WILDCTC_INLINE V gather(const T* from, const int32_t* index) {
    V x;
    if constexpr (sizeof(V) == sizeof(Real<V>)) {
        x = from[*index];
    } else {
        for (size_t i = 0; i < sizeof(V) / sizeof(Real<V>); ++i) x[i] = from[index[i]];
    }
    return x;
}

// Neighbouring numbers are read by moving lanes, not by a load that is one position off: such a load covers two recent
// stores, and would stall until both have reached the cache.
template <int first, class V, int... lane>
WILDCTC_INLINE V lanes_from(V a, V b, std::integer_sequence<int, lane...>) {
#if !defined(WILDCTC_VECTOR_BYTES)
    return first == 0 ? a : b;
#elif defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, (first + lane)...);
#else
    return __builtin_shuffle(a, b, Int<V>{(first + lane)...});
#endif
}

template <class V>
WILDCTC_INLINE Real<V> first_lane(V x) {
    if constexpr (sizeof(V) == sizeof(Real<V>)) {
        return x;
    } else {
        return x[0];
    }
}

// lane i: x[i − 1]; lane 0: the last of `before`
template <class V>
WILDCTC_INLINE V moved_up(V before, V x) {
    if constexpr (sizeof(V) == sizeof(Real<V>)) {
        return before;
    } else {
        constexpr int width = sizeof(V) / sizeof(Real<V>);
        return lanes_from<width - 1>(before, x, std::make_integer_sequence<int, width>());
    }
}

// lane i: x[i + 1]; the last lane: the first of `after`
template <class V>
WILDCTC_INLINE V moved_down(V x, V after) {
    if constexpr (sizeof(V) == sizeof(Real<V>)) {
        return after;
    } else {
        return lanes_from<1>(x, after, std::make_integer_sequence<int, sizeof(V) / sizeof(Real<V>)>());
    }
}

// lane i: number index[i] of the numbers in `a` and then in `b`
template <class V>
WILDCTC_INLINE V picked(V a, V b, Int<V> index) {
#if !defined(WILDCTC_VECTOR_BYTES)
    return index == 0 ? a : b;
#elif defined(__clang__)
    constexpr int width = sizeof(V) / sizeof(Real<V>);
    V x;
    for (int i = 0; i < width; ++i) {
        const auto from = index[i] & (2 * width - 1);
        x[i] = from < width ? a[from] : b[from - width];
    }
    return x;
#else
    return __builtin_shuffle(a, b, index);
#endif
}

template <class V>
WILDCTC_INLINE Scaled<V> picked(Scaled<V> a, Scaled<V> b, Int<V> index) {
    const V e = picked(same_bits<V>(a.e), same_bits<V>(b.e), index);
    return {picked(a.m, b.m, index), same_bits<Int<V>>(e)};
}

template <class V>
WILDCTC_INLINE V chosen(Int<V> which, V a, V b) {
    return which >= 0 ? a : b;
}

template <class V>
WILDCTC_INLINE Scaled<V> chosen(Int<V> which, Scaled<V> a, Scaled<V> b) {
    return {which >= 0 ? a.m : b.m, which >= 0 ? a.e : b.e};
}

template <class V>
WILDCTC_INLINE Scaled<V> moved_up(Scaled<V> before, Scaled<V> x) {
    const V e = moved_up(same_bits<V>(before.e), same_bits<V>(x.e));
    return {moved_up(before.m, x.m), same_bits<Int<V>>(e)};
}

template <class V>
WILDCTC_INLINE Scaled<V> moved_down(Scaled<V> x, Scaled<V> after) {
    const V e = moved_down(same_bits<V>(x.e), same_bits<V>(after.e));
    return {moved_down(x.m, after.m), same_bits<Int<V>>(e)};
}

template <class R>
WILDCTC_INLINE Scaled<Vector<R>> every_lane(Scaled<R> x) {
    return {splat<Vector<R>>(x.m), splat<Int<Vector<R>>>(x.e)};
}

// Reduces the lanes of x to one number: `combine` reduces two vectors to one. The upper half is combined with the lower, and so
// on, in registers: through memory this takes longer than the sum of a short row.
template <class R, class Combine, int half = kWidth<R> / 2>
WILDCTC_INLINE R over_lanes(Vector<R> x, Combine combine) {
    if constexpr (half == 0) {
        return first_lane(x);
    } else {
        return over_lanes<R, Combine, half / 2>(combine(x, lanes_from<half>(x, x, std::make_integer_sequence<int, kWidth<R>>())), combine);
    }
}

template <class R>
WILDCTC_INLINE R sum_of_lanes(Vector<R> x) {
    return over_lanes<R>(x, [](Vector<R> a, Vector<R> b) { return a + b; });
}

template <class R>
WILDCTC_INLINE R least_lane(Vector<R> x) {
    return over_lanes<R>(x, [](Vector<R> a, Vector<R> b) { return a < b ? a : b; });
}

template <class R>
WILDCTC_INLINE R largest_lane(Vector<R> x) {
    return over_lanes<R>(x, [](Vector<R> a, Vector<R> b) { return a > b ? a : b; });
}

// x with its first `count` lanes set to 0
template <class R>
WILDCTC_INLINE Vector<R> without_first(Vector<R> x, int64_t count) {
    Int<R> number[kWidth<R>];
    for (int64_t i = 0; i < kWidth<R>; ++i) number[i] = static_cast<Int<R>>(i);
    return load<Int<Vector<R>>>(number) >= splat<Int<Vector<R>>>(static_cast<Int<R>>(count)) ? x : Vector<R>{};
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
