// Vectors of numbers: the type for this instruction set, and arrays of scaled numbers read and written by the vector.
// Included by kernel.cpp only, which says what WILDCTC_ISA and WILDCTC_VECTOR_BYTES are.
#pragma once

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

// lane by lane, which is faster than the hardware's gather (1.4× over the whole loss) and than a detour through memory
template <class R>
WILDCTC_INLINE Vector<R> gather(const R* from, const int32_t* index) {
    Vector<R> x;
    if constexpr (kWidth<R> == 1) {
        x = from[*index];
    } else {
        for (int64_t i = 0; i < kWidth<R>; ++i) x[i] = from[index[i]];
    }
    return x;
}

template <class R>
WILDCTC_INLINE Scaled<Vector<R>> every_lane(Scaled<R> x) {
    return {splat<Vector<R>>(x.m), splat<Int<Vector<R>>>(x.e)};
}

template <class R>
WILDCTC_INLINE R sum_of_lanes(Vector<R> x) {
    R lanes[kWidth<R>], sum = 0;
    store(lanes, x);
    for (const R lane : lanes) sum += lane;
    return sum;
}

// Numbers over positions, as two arrays: one of them at [k], or a vector of them from k on.
template <class R>
struct Numbers {
    R* m;
    Int<R>* e;

    Scaled<R> operator[](int64_t k) const { return {m[k], e[k]}; }
    void set(int64_t k, Scaled<R> x) const {
        m[k] = x.m;
        e[k] = x.e;
    }
    Scaled<Vector<R>> from(int64_t k) const { return {load<Vector<R>>(m + k), load<Int<Vector<R>>>(e + k)}; }
    void set_from(int64_t k, Scaled<Vector<R>> x) const {
        store(m + k, x.m);
        store(e + k, x.e);
    }
    void clear(int64_t first, int64_t last) const {
        for (int64_t k = first; k < last; ++k) set(k, {R(1), Format<R>::zero});
    }
    void clear_vectors(int64_t first, int64_t last) const {
        const Scaled<Vector<R>> zero = every_lane(Scaled<R>{R(1), Format<R>::zero});
        for (int64_t k = first; k < last; k += kWidth<R>) set_from(k, zero);
    }
    Numbers at(int64_t offset) const { return {m + offset, e + offset}; }
};

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
