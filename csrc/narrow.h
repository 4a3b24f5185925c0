// Finds out whether plain doubles are enough for an utterance. Included by kernel.cpp only.
//
// Every few frames the emissions of a frame are multiplied by a power of 2 that brings the largest alpha back to 2^512. The
// betas use the same emissions, so alpha · beta always has the scale of the total. Numbers below 2^-1022 are lost.
// The forward pass keeps a lower bound of the numbers that are not 0, which shows when a loss is possible. Then at most
// 10 (U + 1) terms a frame are lost (a graph: Graph::terms), each below 2^-1022, and each can grow only as much as all paths that continue it.
// Together they must be below 2^-40 of the total. The backward pass needs no bound: the posteriors of a frame add up to 1,
// and a loss shows as a difference.
#pragma once

#include <cmath>
#include <limits>
#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

#include "recursion.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

// Subnormal numbers are slow on some processors, and nothing here needs them.
class FlushToZero {
#if defined(__SSE2__) || defined(_M_X64)
  public:
    FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~FlushToZero() { _mm_setcsr(before_); }
    FlushToZero(const FlushToZero&) = delete;

  private:
    unsigned before_;
#endif
};

WILDCTC_INLINE int64_t exponent_of(double x) {
    return ((bits_of(x) >> 52) & 2047) - 1023;
}

class RangeWatch {
  public:
    // Finds the range of the state before a frame, and sets the frame's shift. False: out of range.
    bool rescale(const States<Narrow>& s, const Band& band, bool wildcards, FrameScores<float>& f) {
        using V = Vector<double>;
        const V huge = splat<V>(std::numeric_limits<double>::max());
        V most{}, least = huge;
        const auto look = [&](V x) {
            most = larger(most, x);
            const V positive = x > 0 ? x : huge;
            least = positive < least ? positive : least;
        };
        for (int64_t k = band.begin; k < band.end; k += kStep<Narrow>) {
            look(s.blank.from(k));
            look(s.token.from(k));
            if (wildcards) look(s.star.from(k));
        }
        const double max = largest_lane<double>(most), min = least_lane<double>(least);
        if (max == 0) return true;  // no path, and none can begin later
        lowest_ = exponent_of(min);
        f.shift = static_cast<int32_t>(kTop - exponent_of(max));
        return f.shift < kMostShift && !hopeless(exponent_of(max), 3.0 * static_cast<double>(band.end - band.begin));
    }

    // Updates the bounds for a frame. False: out of range.
    bool step(const FrameScores<float>& f, int64_t least_weight, int64_t least_enter) {
        if (!f.flat || f.token.e < kLeastEmission || f.blank.e < kLeastEmission || f.star.e < kLeastEmission) return false;
        const int64_t token = f.token.e + f.least + least_enter, star = f.star.e + least_weight;
        const int64_t after = lowest_ + f.shift + smaller(smaller(token, f.blank.e), star);
        const int64_t between = lowest_ + smaller(least_weight, least_enter);
        const int64_t before = shifted_;
        shifted_ += f.shift;
        if (smaller(after, between) < kLost) lost_at_ = smaller(lost_at_, smaller(before, shifted_));
        lowest_ = larger(after, kLost);
        stars_ += static_cast<double>(plain(f.star));
        return true;
    }

    // The log-likelihood of a total; false if the lost numbers could change it.
    bool log_likelihood(double total, int64_t frames, const Graph<float>& g, double& result) const {
        constexpr double per_bit = 0.69314718055994530942;
        const bool nothing_lost = lost_at_ == std::numeric_limits<int64_t>::max();
        result = total > 0 ? std::log(total) - static_cast<double>(shifted_) * per_bit
                           : -std::numeric_limits<double>::infinity();
        if (nothing_lost || frames == 0) return true;
        const double terms = static_cast<double>(g.terms) * static_cast<double>(frames);
        // a state's continuations: blank, tokens that differ, and ★ by up to four arcs (g.stars), of weights up to 1; in a
        // graph there are e^g.same ways at most to say the same tokens
        const double growth = g.stars * stars_ + g.same;
        return result > std::log(terms) + growth + static_cast<double>(kLost - lost_at_ + 40) * per_bit;
    }

  private:
    // Whether something was lost that the total cannot outweigh: the total is at most all that there is now, 2^(exponent + 1) in
    // each state, times the growth that `log_likelihood` allows for the rest of the frames, and its bound is at least this.
    bool hopeless(int64_t exponent, double states) const {
        if (lost_at_ == std::numeric_limits<int64_t>::max()) return false;
        constexpr double per_bit = 0.69314718055994530942;
        const double now = std::log(states) + static_cast<double>(exponent + 1 - shifted_) * per_bit;
        return now < 4 * stars_ + static_cast<double>(kLost - lost_at_ + 40) * per_bit;
    }

    static constexpr int64_t kTop = 512, kMostShift = 1000, kLeastEmission = -200, kLost = -1022;

    static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

    int64_t shifted_ = 0;  // numbers are 2^shifted times too large
    int64_t lowest_ = 0;   // all numbers except 0 are at least 2^lowest
    int64_t lost_at_ = std::numeric_limits<int64_t>::max();  // the least `shifted` with which a number may have been lost
    double stars_ = 0;     // sum of P(★)
};

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
