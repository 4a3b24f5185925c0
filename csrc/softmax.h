// From a frame's logits to its emissions, and back to its gradient. Included by kernel.cpp only.
#pragma once

#include <limits>

#include "formats.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

// Positions [begin, end), both multiples of the vector width.
struct Band {
    int64_t begin, end;
};

// The largest non-blank logit and the sum of e^(logit − largest) are computed without the blank, so that ★ keeps its value
// and its gradient where P(blank) rounds to 1.

template <class R>
struct Range {
    R min, max;
};

template <class R>
static Range<R> widened(Range<R> range, const R* x, int64_t count) {
    using V = Vector<R>;
    if (count < kWidth<R>) {
        for (int64_t v = 0; v < count; ++v) range = {x[v] < range.min ? x[v] : range.min, x[v] > range.max ? x[v] : range.max};
        return range;
    }
    V min = splat<V>(range.min), max = splat<V>(range.max);
    const auto look = [&](int64_t v) {
        const V y = load<V>(x + v);
        max = y > max ? y : max;
        min = y < min ? y : min;
    };
    for (int64_t v = 0; v + kWidth<R> <= count; v += kWidth<R>) look(v);
    look(count - kWidth<R>);  // the last vector overlaps with the one before
    return {least_lane<R>(min), largest_lane<R>(max)};
}

// out_v = e^(x_v − max), and their sum
template <class R>
static R exponentials(const R* x, int64_t count, R max, R* out) {
    using V = Vector<R>;
    R sum = 0;
    if (count < kWidth<R>) {
        for (int64_t v = 0; v < count; ++v) sum += out[v] = exp_nonpositive(x[v] - max);
        return sum;
    }
    V sums{};
    int64_t v = 0;
    for (; v + kWidth<R> <= count; v += kWidth<R>) {
        const V y = exp_nonpositive(load<V>(x + v) - max);
        store(out + v, y);
        sums += y;
    }
    if (v < count) {  // the last vector overlaps with the one before, whose numbers are in the sum already
        const int64_t again = v - (count - kWidth<R>);
        const V y = exp_nonpositive(load<V>(x + count - kWidth<R>) - max);
        store(out + count - kWidth<R>, y);
        sums += without_first<R>(y, again);
    }
    return sum_of_lanes<R>(sums);
}

// Leaves e^(x_v − max) in `relative`. False if a logit is NaN or +inf, or all are −inf: then there is no softmax.
template <class R>
static bool score_frame(const R* x, int64_t outputs, int64_t blank, R* relative, FrameScores<R>& f) {
    constexpr R infinity = std::numeric_limits<R>::infinity();
    const R y = x[blank];
    const Range<R> range = widened(widened(Range<R>{infinity, -infinity}, x, blank), x + blank + 1, outputs - blank - 1);
    const bool any = range.max > -infinity;
    f.max = any ? range.max : y;
    f.flat = any && range.min - range.max > Format<R>::exp_lowest;
    f.least = f.flat ? static_cast<int32_t>((range.min - range.max) * R(1.4427)) - 1 : 0;
    f.shift = 0;
    // NaN is never the largest, but makes the sum NaN; so does +inf, by inf − inf
    f.sum = exponentials(x, blank, f.max, relative) +
            exponentials(x + blank + 1, outputs - blank - 1, f.max, relative + blank + 1);
    relative[blank] = 1;
    const R top = larger(range.max, y);
    if (!(y < infinity) || !(f.sum < infinity) || top == -infinity) return false;
    const Scaled<R> to_blank = scaled_exp(y - top), to_most = scaled_exp(f.max - top);
    const R others = any ? f.sum * plain(to_most) : R(0);
    const R inverse = R(1) / (others + plain(to_blank));
    const Scaled<R> inverse_total = normalised(Scaled<R>{inverse, 0});
    f.non_blank = others * inverse;
    f.blank = normalised(to_blank * inverse_total);
    f.token = f.star = {R(1), Format<R>::zero};
    if (any) {
        f.token = normalised(to_most * inverse_total);
        f.star = normalised(f.token * Scaled<R>{f.sum / static_cast<R>(outputs - 1), 0});
    }
    return true;
}

// P(y_k) for the positions of a band. `relative` is the result of score_frame, or null if it was not kept.
template <class R>
static void token_emissions(const R* x, const R* relative, const Graph<R>& g, const FrameScores<R>& f, const Band& band,
                            ScaledArray<R> out) {
    const Scaled<Vector<R>> scale = every_lane(f.token);
    if (relative != nullptr && f.flat) {
        for (int64_t k = band.begin; k < band.end; k += kWidth<R>) {
            const Scaled<Vector<R>> y{gather<Vector<R>>(relative, g.label + k), load<Int<Vector<R>>>(g.no_token + k)};
            out.set_from(k, with_mantissa_near_one(y) * scale);
        }
    } else {
        for (int64_t k = band.begin; k < band.end; k += kWidth<R>) {
            const Scaled<Vector<R>> y = scaled_exp(gather<Vector<R>>(x, g.label + k) - f.max) * scale;
            out.set_from(k, {y.m, y.e + load<Int<Vector<R>>>(g.no_token + k)});
        }
    }
}

// The same as plain numbers, of a frame that is flat.
static void token_emissions(const float*, const float* relative, const Graph<float>& g, const FrameScores<float>& f,
                            const Band& band, PlainArray out) {
    const Vector<double> scale = Narrow::everywhere(Narrow::number(f.token, f.shift));
    for (int64_t k = band.begin; k < band.end; k += kWidth<double>)
        out.set_from(k, gather<Vector<double>>(relative, g.label + k) * scale);
    if (band.begin == 0) out.set(0, 0);
    for (int64_t k = g.tokens + 1; k < band.end; ++k) out.set(k, 0);
}

// Expected number of times that a frame is spent in each label; `total` of them is one frame.
template <class R>
struct Occupancy {
    R blank, star, total;
};

// grad_v = P_v − γ_v − γ_★ q_v, with q the softmax over the non-blank outputs; since P_v = q_v (1 − P_blank), it is a
// multiple of e^(x_v − max), which `out` holds, except for the labels of the transcript.
template <class R, class Count>
static void finish_gradient(const Graph<R>& g, int64_t outputs, int64_t blank, const FrameScores<R>& f,
                            const Occupancy<Count>& n, const Band& band, const Count* token_count, R* token_share, R scale,
                            R* out) {
    const Count share = scale / n.total;
    const R factor = f.sum > 0 ? (f.non_blank * scale - static_cast<R>(n.star * share)) / f.sum : R(0);
    int64_t v = 0;
    for (; v + kWidth<R> <= outputs; v += kWidth<R>) store(out + v, load<Vector<R>>(out + v) * factor);
    for (; v < outputs; ++v) out[v] *= factor;
    out[blank] = plain(f.blank) * scale - static_cast<R>(n.blank * share);
    const int64_t last = band.end <= g.tokens ? band.end - 1 : g.tokens;
    const int64_t first = band.begin > 0 ? band.begin : 1;
    if constexpr (sizeof(Count) == sizeof(R)) {
        for (int64_t k = first; k <= last; ++k) out[g.label[k]] -= token_count[k] * share;
    } else {  // by the vector
        for (int64_t k = band.begin; k < band.end; ++k) token_share[k] = static_cast<R>(token_count[k] * share);
        for (int64_t k = first; k <= last; ++k) out[g.label[k]] -= token_share[k];
    }
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
