// The two number formats of the lattice. Included by kernel.cpp only.
//
// Wide<R>: mantissa and exponent (scaled.h). Nothing underflows, however sharp the model.
// Narrow: plain doubles, all rescaled together every few frames; a quarter faster, because a sum is one addition. Rescaled
// numbers below 2^-1022 are lost. narrow.h detects whether that can matter; if it can, the utterance is computed again with
// wide numbers.
//
// A format names: Logit, the type of the logits and of their gradient; Real, of posteriors; One and Many, a number of the
// lattice and a vector of them; Array, numbers over positions.
#pragma once

#include "lattice.h"
#include "vectors.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

// Numbers over positions, as two arrays: one of them at [k], or a vector of them from k on.
template <class R>
struct ScaledArray {
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
    void copy_from(ScaledArray other, int64_t count) const {
        std::memcpy(m, other.m, static_cast<size_t>(count) * sizeof(R));
        std::memcpy(e, other.e, static_cast<size_t>(count) * sizeof(Int<R>));
    }
    ScaledArray at(int64_t offset) const { return {m + offset, e + offset}; }
};

struct PlainArray {
    double* x;

    double operator[](int64_t k) const { return x[k]; }
    void set(int64_t k, double y) const { x[k] = y; }
    Vector<double> from(int64_t k) const { return load<Vector<double>>(x + k); }
    void set_from(int64_t k, Vector<double> y) const { store(x + k, y); }
    void copy_from(PlainArray other, int64_t count) const {
        std::memcpy(x, other.x, static_cast<size_t>(count) * sizeof(double));
    }
    PlainArray at(int64_t offset) const { return {x + offset}; }
};

template <class R>
struct Wide {
    using Logit = R;
    using Real = R;
    using One = Scaled<R>;
    using Many = Scaled<Vector<R>>;
    using Array = ScaledArray<R>;
    static constexpr bool limited = false;
    static constexpr R irrelevant = Format<R>::irrelevant;

    static One zero() { return {R(1), Format<R>::zero}; }
    static One one() { return {R(1), 0}; }
    static Many everywhere(One x) { return every_lane(x); }
    static One number(Scaled<R> x, int32_t /*shift*/) { return x; }
    static One weight(Weighting<R> w, int64_t k) { return {w.m[k], w.e[k]}; }
    static Many weights(Weighting<R> w, int64_t k) {
        return {load<Vector<R>>(w.m + k), load<Int<Vector<R>>>(w.e + k)};
    }
    // turns alpha · beta into a posterior, except for a factor near 1
    static One unit(One total) { return {R(1), -total.e}; }
};

struct Narrow {
    using Logit = float;
    using Real = double;
    using One = double;
    using Many = Vector<double>;
    using Array = PlainArray;
    static constexpr bool limited = true;
    static constexpr double irrelevant = Format<float>::irrelevant;

    static One zero() { return 0; }
    static One one() { return 1; }
    static Many everywhere(One x) { return splat<Many>(x); }
    static One number(Scaled<float> x, int32_t shift) { return x.m * power_of_two<double>(x.e + shift + 1023); }
    static One weight(Weighting<float> w, int64_t k) { return w.plain[k]; }
    static Many weights(Weighting<float> w, int64_t k) { return load<Many>(w.plain + k); }
    static One unit(One total) { return 1 / total; }
};

template <class F>
constexpr int64_t kStep = kWidth<typename F::Real>;  // positions in a vector

template <class F>
WILDCTC_INLINE int64_t whole(int64_t positions) {
    return whole_vectors<typename F::Real>(positions);
}

template <class F>  // whole vectors
WILDCTC_INLINE void clear_vectors(typename F::Array array, int64_t first, int64_t last) {
    for (int64_t k = first; k < last; k += kStep<F>) array.set_from(k, F::everywhere(F::zero()));
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
