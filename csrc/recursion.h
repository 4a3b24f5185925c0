// One frame of the lattice: alphas forward, betas backward, and what both together say. Included by kernel.cpp only.
//
// Three states a position k (B: in blank, N: in token y_k, S: in ★):
//
//   B_k' = P(blank) · (B_k + N_k + S_k)
//   N_k' = P(y_k)   · (N_k + B_{k-1} + S_{k-1} + [y_k ≠ y_{k-1}] N_{k-1})
//   S_k' = P(★)     · (S_k + self_k (B_k + N_k) + bypass_k (B_{k-1} + N_{k-1}) + word (B_s + N_s))
//
// The loops over positions take a vector of them at a time; repeated labels and word arcs are few, and are treated one by
// one beside them.
#pragma once

#include "softmax.h"
#include "workspace.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

enum class Arcs { none, tokens, words };  // plain CTC; wildcards without word arcs; wildcards with them

// Mantissas are brought back to [1, 2) every kSettle-th frame only. Between, a frame multiplies a mantissa by something
// in [2^-0.6, 2^5] and adds at least twice Format::zero to an exponent, which both formats have room for.
constexpr int64_t kSettle = 4;

template <bool Settle, class V>
WILDCTC_INLINE Scaled<V> settled(Scaled<V> x) {
    if constexpr (Settle) return normalised(x);
    return x;
}

template <class R>
WILDCTC_INLINE Scaled<Vector<R>> weights_from(Weighting<R> w, int64_t k) {
    return {load<Vector<R>>(w.m + k), load<Int<Vector<R>>>(w.e + k)};
}

template <class R>
WILDCTC_INLINE Scaled<R> weight_at(Weighting<R> w, int64_t k) {
    return {w.m[k], w.e[k]};
}

// Alphas from before a frame to after it, at positions [0, end).
template <class R, Arcs A, bool Settle>
void advance(const Graph<R>& g, const States<R> from, const States<R> to, const Numbers<R> p, const FrameScores<R>& f,
             const int64_t end, const Workspace<R>& w) {
    using V = Vector<R>;
    const Numbers<R> either = w.either, all = w.all, word = w.word_source;
    const Weighting<R> self_loop = g.self_loop, bypass = g.bypass, word_in = g.word_in;
    const Scaled<V> blank = every_lane(f.blank), star = every_lane(f.star);
    for (int64_t k = 0; k < end; k += kWidth<R>) {
        const Scaled<V> c = sum(from.blank.from(k), from.token.from(k));
        if constexpr (A == Arcs::none) {
            all.set_from(k, c);
        } else {
            either.set_from(k, c);
            all.set_from(k, sum(c, from.star.from(k)));
        }
    }
    if constexpr (A == Arcs::words) {
        const WordArc* arcs = g.words;
        const int64_t count = g.next_word[end];
        for (int64_t i = 0; i < count; ++i) word.set(arcs[i].end, either[arcs[i].start]);
    }
    for (int64_t k = 0; k < end; k += kWidth<R>) {
        to.blank.set_from(k, settled<Settle>(all.from(k) * blank));
        to.token.set_from(k, settled<Settle>(sum(from.token.from(k), all.from(k - 1)) * p.from(k)));
    }
    // a loop of its own: by now the few numbers copied to word ends have left the store buffer
    if constexpr (A != Arcs::none) {
        for (int64_t k = 0; k < end; k += kWidth<R>) {
            const Scaled<V> loops = either.from(k) * weights_from(self_loop, k);
            const Scaled<V> bypasses = either.from(k - 1) * weights_from(bypass, k);
            Scaled<V> x;
            if constexpr (A == Arcs::words) {
                x = sum(from.star.from(k), loops, bypasses, word.from(k) * weights_from(word_in, k));
            } else {
                x = sum(from.star.from(k), loops, bypasses);
            }
            to.star.set_from(k, settled<Settle>(x * star));
        }
    }
    for (int64_t i = 0; i < g.num_repeats; ++i) {
        const int64_t k = g.repeats[i];
        if (k >= end) break;
        Scaled<R> x = sum(from.token[k], from.blank[k - 1]);
        if constexpr (A != Arcs::none) x = sum(x, from.star[k - 1]);
        to.token.set(k, settled<Settle>(x * p[k]));
    }
}

// Betas from after a frame, where they are 0 outside the band, to before it. Leaves P · beta of N in w.either and of S
// in w.all, and returns the band outside which the new betas are 0.
template <class R, Arcs A, bool Settle>
Band retreat(const Graph<R>& g, const States<R> from, const States<R> to, const Numbers<R> p, const FrameScores<R>& f,
             const Band band, const Workspace<R>& w) {
    using V = Vector<R>;
    const Band reach{g.farthest_back[band.begin] / kWidth<R> * kWidth<R>, band.end};
    const Numbers<R> token = w.either, star = w.all, word = w.word_target;
    const Weighting<R> self_loop = g.self_loop, bypass = g.bypass, word_out = g.word_out;
    const Scaled<V> p_blank = every_lane(f.blank), p_star = every_lane(f.star);
    from.blank.clear_vectors(reach.begin, band.begin);
    token.clear_vectors(reach.begin, band.begin);
    token.clear_vectors(band.end, band.end + kWidth<R>);
    if constexpr (A != Arcs::none) {
        star.clear_vectors(reach.begin, band.begin);
        star.clear_vectors(band.end, band.end + kWidth<R>);
    }
    if constexpr (A != Arcs::none)
        for (int64_t k = band.begin; k < band.end; k += kWidth<R>) star.set_from(k, from.star.from(k) * p_star);
    if constexpr (A == Arcs::words) {
        const WordArc* arcs = g.words;
        const int64_t count = g.next_word[reach.end];
        for (int64_t i = g.next_word[reach.begin]; i < count; ++i) {
            const bool inside = arcs[i].end >= band.begin && arcs[i].end < band.end;
            word.set(arcs[i].start, {star.m[arcs[i].end], inside ? star.e[arcs[i].end] : Format<R>::zero});
        }
    }
    for (int64_t k = band.begin; k < band.end; k += kWidth<R>) token.set_from(k, from.token.from(k) * p.from(k));
    for (int64_t k = reach.begin; k < reach.end; k += kWidth<R>) {
        const Scaled<V> onward = sum(from.blank.from(k) * p_blank, token.from(k + 1));
        if constexpr (A == Arcs::none) {
            to.blank.set_from(k, settled<Settle>(onward));
            to.token.set_from(k, settled<Settle>(sum(onward, token.from(k))));
        } else {
            const Scaled<V> loops = star.from(k) * weights_from(self_loop, k);
            const Scaled<V> bypasses = star.from(k + 1) * weights_from(bypass, k + 1);
            Scaled<V> out;
            if constexpr (A == Arcs::words) {
                out = sum(onward, loops, bypasses, word.from(k) * weights_from(word_out, k));
            } else {
                out = sum(onward, loops, bypasses);
            }
            to.blank.set_from(k, settled<Settle>(out));
            to.token.set_from(k, settled<Settle>(sum(out, token.from(k))));
            to.star.set_from(k, settled<Settle>(sum(onward, star.from(k))));
        }
    }
    for (int64_t i = 0; i < g.num_repeats; ++i) {
        const int64_t k = g.repeats[i] - 1;
        if (k < reach.begin || k >= reach.end) continue;
        Scaled<R> x = sum(from.blank[k] * f.blank, token[k]);
        if constexpr (A != Arcs::none)
            x = sum(x, star[k] * weight_at(self_loop, k), star[k + 1] * weight_at(bypass, k + 1));
        if constexpr (A == Arcs::words) x = sum(x, word[k] * weight_at(word_out, k));
        to.token.set(k, settled<Settle>(x));
    }
    return reach;
}

// alpha · beta / total of one frame. They are divided by their own sum, not by the likelihood: the two are equal but
// for rounding, which over thousands of frames would otherwise be seen.
//
// The band shrinks to where the posteriors of a vector of positions add up to Format::irrelevant or more. What a cell
// outside can add to any earlier posterior is at most its own, so all that is dropped together is below
// T · (U + 1) · irrelevant: 9e-14 of the gradient (float) for 500 frames and 200 tokens. A sharp model leaves little more
// than its alignment.
template <class R, Arcs A>
Occupancy<R> occupancy(const States<R> alpha, const States<R> beta, Int<R> total_e, Band& band,
                       const Workspace<R>& w) {
    using V = Vector<R>;
    const Scaled<V> unit = every_lane(Scaled<R>{R(1), -total_e});
    V blank{}, token{}, star{};
    for (int64_t k = band.begin; k < band.end; k += kWidth<R>) {
        const V b = plain(alpha.blank.from(k) * beta.blank.from(k) * unit);
        const V n = plain(alpha.token.from(k) * beta.token.from(k) * unit);
        V all = b + n;
        if constexpr (A != Arcs::none) {
            const V s = plain(alpha.star.from(k) * beta.star.from(k) * unit);
            star += s;
            all += s;
        }
        store(w.token_count + k, n);
        store(w.any_count + k, all);
        blank += b;
        token += n;
    }
    const auto irrelevant = [&](int64_t k) { return sum_of_lanes<R>(load<V>(w.any_count + k)) < Format<R>::irrelevant; };
    while (band.end - band.begin > kWidth<R> && irrelevant(band.begin)) band.begin += kWidth<R>;
    while (band.end - band.begin > kWidth<R> && irrelevant(band.end - kWidth<R>)) band.end -= kWidth<R>;
    const R in_blank = sum_of_lanes<R>(blank), in_star = sum_of_lanes<R>(star);
    return {in_blank, in_star, in_blank + in_star + sum_of_lanes<R>(token)};
}

// Adds the posteriors of the ★ arcs taken between two frames: alpha before the frame, and w.all as retreat left it.
template <class R>
void count_arcs(const Graph<R>& g, const States<R> alpha, Int<R> total_e, R total, const Band band,
                const Workspace<R>& w) {
    using V = Vector<R>;
    const Numbers<R> either = w.either, star = w.all;
    const Weighting<R> self_loop = g.self_loop, bypass = g.bypass;
    const R share = R(1) / total;
    const Scaled<R> unit{R(1), -total_e};
    const Scaled<V> units = every_lane(unit);
    const int64_t first = g.farthest_back[band.begin] / kWidth<R> * kWidth<R>;
    for (int64_t k = first; k < band.end; k += kWidth<R>)
        either.set_from(k, normalised(sum(alpha.blank.from(k), alpha.token.from(k))));
    for (int64_t k = band.begin; k < band.end; k += kWidth<R>) {
        const Scaled<V> onward = normalised(star.from(k)) * units;
        const V loops = plain(either.from(k) * weights_from(self_loop, k) * onward) * share;
        const V bypasses = plain(either.from(k - 1) * weights_from(bypass, k) * onward) * share;
        store(w.self_loop + k, load<V>(w.self_loop + k) + loops);
        store(w.bypass + k, load<V>(w.bypass + k) + bypasses);
    }
    for (int64_t i = 0; i < g.num_words; ++i) {
        const WordArc& arc = g.words[i];
        if (arc.end < band.begin || arc.end >= band.end) continue;
        const Scaled<R> onward = normalised(star[arc.end]) * unit;
        w.word[i] += plain(either[arc.start] * weight_at(g.word_in, arc.end) * onward) * share;
    }
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
