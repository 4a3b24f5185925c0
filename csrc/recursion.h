// One frame of the lattice: alphas forward, betas backward, and the posteriors from both. Included by kernel.cpp only.
//
// Three states a position k (B: in blank, N: in token y_k, S: in ★):
//
//   B_k' = P(blank) · (B_k + N_k + S_k)
//   N_k' = P(y_k)   · (N_k + B_{k-1} + S_{k-1} + [y_k ≠ y_{k-1}] N_{k-1})
//   S_k' = P(★)     · (S_k + self_k (B_k + N_k) + bypass_k (B_{k-1} + N_{k-1}) + word (B_s + N_s))
//
// The loops over positions take a vector of them at a time. Repeated labels and word arcs are few, and are computed one by
// one after or before them; so is what makes a graph more than a chain (jumps.h). F is the format of the numbers (formats.h).
#pragma once

#include "jumps.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

// plain CTC; wildcards without word arcs; wildcards with them; a graph that is no chain
enum class Arcs { none, tokens, words, graph };

// Mantissas are brought back to [1, 2) only in every kSettle-th frame. A frame between multiplies a mantissa by a factor
// in [2^-0.6, 2^5] and adds at least twice Format::zero to an exponent; both formats have room for that. Plain numbers
// are rescaled as often.
constexpr int64_t kSettle = 4;

template <bool Settle, class X>
WILDCTC_INLINE X settled(X x) {
    if constexpr (Settle) return normalised(x);
    return x;
}

// A frame's emissions, except for its tokens.
template <class F>
struct Emissions {
    typename F::One blank, star;

    explicit Emissions(const FrameScores<typename F::Logit>& f)
        : blank(F::number(f.blank, f.shift)), star(F::number(f.star, f.shift)) {}
};

// Calls send(i) for the words [first, last) that are sent through memory.
template <class F, class Send>
WILDCTC_INLINE void each_word(const Workspace<F>& w, int64_t first, int64_t last, const Send& send) {
    if constexpr (kNearWords<F>) {
        for (int32_t j = 1; j <= w.far[0]; ++j)
            if (w.far[j] >= first && w.far[j] < last) send(w.far[j]);
    } else {
        for (int64_t i = first; i < last; ++i) send(i);
    }
}

// What comes through word arcs to the positions from k on. `a` and `b`: the vectors that hold it, of near words.
template <class F>
WILDCTC_INLINE typename F::Many through_words(const Int<typename F::Real>* lanes, typename F::Array far, int64_t k,
                                              typename F::Many a, typename F::Many b) {
    if constexpr (kNearWords<F>) {
        const auto index = load<Int<Vector<typename F::Real>>>(lanes + k);
        return chosen(index, picked(a, b, index), far.from(k));
    } else {
        return far.from(k);
    }
}

// Copies what the next `advance` sends through word arcs to the ends of the arcs. Call it some time before: a vector load
// of numbers that were just stored one by one stalls until they have reached the cache.
template <class F, Arcs A>
void send_through_words(const GraphFor<F>& g, const States<F> from, const Band band, const Workspace<F>& w) {
    if constexpr (A == Arcs::words) {
        const auto send = [&](int64_t i) {
            const int64_t start = g.words[i].start;
            w.word_source.set(g.words[i].end, sum(from.blank[start], from.token[start]));
        };
        each_word<F>(w, g.next_word[g.farthest_back[band.begin]], g.next_word[band.end], send);
    } else if constexpr (A == Arcs::graph) {
        send_over_jumps<F>(g, from, band, w);
    }
}

// The first repeat from position k on.
template <class R>
int64_t first_repeat(const Graph<R>& g, int64_t k) {
    int64_t first = 0;
    for (int64_t count = g.num_repeats; count > 0;) {
        const int64_t half = count / 2;
        const bool before = g.repeats[first + half] < k;
        first += before ? half + 1 : 0;
        count = before ? count - half - 1 : half;
    }
    return first;
}

// Alphas from before a frame to after it, at the positions of a band.
template <class F, Arcs A, bool Settle>
void advance(const GraphFor<F>& g, const States<F> from, const States<F> to, const typename F::Array p,
             const Emissions<F> f, const Band band, const Workspace<F>& w) {
    using Many = typename F::Many;
    const typename F::Array word = w.word_source;
    const auto self_loop = g.self_loop, bypass = g.bypass, word_in = g.word_in, enter = entering<A == Arcs::graph>(g);
    const Many blank = F::everywhere(f.blank), star = F::everywhere(f.star);
    Many either_before = F::everywhere(F::zero()), all_before = either_before;
    if (const int64_t k = band.begin - kStep<F>; k >= 0) {
        either_before = all_before = sum(from.blank.from(k), from.token.from(k));
        if constexpr (A != Arcs::none) all_before = sum(either_before, from.star.from(k));
    }
    for (int64_t k = band.begin; k < band.end; k += kStep<F>) {
        const Many in_token = from.token.from(k), either = sum(from.blank.from(k), in_token);
        Many all = either;
        if constexpr (A != Arcs::none) {
            const Many in_star = from.star.from(k);
            const Many loops = either * F::weights(self_loop, k);
            const Many bypasses = moved_up(either_before, either) * F::weights(bypass, k);
            Many x;
            if constexpr (A == Arcs::words) {
                const Many words = through_words<F>(w.word_from, word, k, either_before, either);
                x = sum(in_star, loops, bypasses, words * F::weights(word_in, k));
            } else if constexpr (A == Arcs::graph) {
                x = sum(in_star, loops, bypasses, word.from(k));
            } else {
                x = sum(in_star, loops, bypasses);
            }
            to.star.set_from(k, settled<Settle>(x * star));
            all = sum(either, in_star);
            either_before = either;
        }
        to.blank.set_from(k, settled<Settle>(all * blank));
        Many into_token = moved_up(all_before, all);
        if constexpr (A == Arcs::graph) into_token = sum(into_token * F::weights(enter, k), w.token_source.from(k));
        to.token.set_from(k, settled<Settle>(sum(in_token, into_token) * p.from(k)));
        all_before = all;
    }
    for (int64_t i = first_repeat(g, band.begin); i < g.num_repeats; ++i) {
        const int64_t k = g.repeats[i];
        if (k >= band.end) break;
        typename F::One x = sum(from.token[k], from.blank[k - 1]);
        if constexpr (A != Arcs::none) x = sum(x, from.star[k - 1]);
        to.token.set(k, settled<Settle>(x * p[k]));
    }
}

// The positions from which the band can be reached.
template <class F>
Band reach_of(const GraphFor<F>& g, Band band) {
    return {g.farthest_back[band.begin] / kStep<F> * kStep<F>, band.end};
}

// As send_through_words, but from the ends of words to their starts, for the next `retreat` from inside the band.
template <class F, Arcs A>
void send_back_through_words(const GraphFor<F>& g, const States<F> from, const typename F::Array p, const Emissions<F> f,
                             const Band band, const Workspace<F>& w) {
    if constexpr (A == Arcs::words) {
        const auto send = [&](int64_t i) {
            const int64_t end = g.words[i].end;
            const bool inside = end >= band.begin && end < band.end;
            w.word_target.set(g.words[i].start, inside ? from.star[end] * f.star : F::zero());
        };
        each_word<F>(w, g.next_word[reach_of<F>(g, band).begin], g.next_word[band.end], send);
    } else if constexpr (A == Arcs::graph) {
        send_back_over_jumps<F>(g, from, p, f.star, band, reach_of<F>(g, band), w);
    }
}

// Betas from after a frame, which count as 0 outside the band, to before it. Leaves P · beta of S in w.star, and returns
// the band outside which the new betas are 0.
template <class F, Arcs A, bool Settle>
Band retreat(const GraphFor<F>& g, const States<F> from, const States<F> to, const typename F::Array p,
             const Emissions<F> f, const Band band, const Workspace<F>& w) {
    using Many = typename F::Many;
    const Band reach = reach_of<F>(g, band);
    const typename F::Array star = w.star, word = w.word_target;
    const auto self_loop = g.self_loop, bypass = g.bypass, word_out = g.word_out, enter = entering<A == Arcs::graph>(g);
    const Many p_blank = F::everywhere(f.blank), p_star = F::everywhere(f.star);
    clear_vectors<F>(from.blank, reach.begin, band.begin);
    clear_vectors<F>(from.token, reach.begin, band.begin);
    if constexpr (A != Arcs::none) {
        clear_vectors<F>(from.star, reach.begin, band.begin);
        clear_vectors<F>(star, reach.end, reach.end + kStep<F>);
    }
    Many token_after = F::everywhere(F::zero()), star_after = token_after, bypass_after = token_after;
    if constexpr (A != Arcs::none) bypass_after = F::weights(bypass, reach.end);
    for (int64_t k = reach.end - kStep<F>; k >= reach.begin; k -= kStep<F>) {
        const Many in_token = from.token.from(k) * p.from(k);
        Many out_token = in_token;
        if constexpr (A == Arcs::graph) out_token = in_token * F::weights(enter, k);
        Many onward = sum(from.blank.from(k) * p_blank, moved_down(out_token, token_after));
        if constexpr (A == Arcs::graph) onward = sum(onward, w.token_target.from(k));
        Many out = onward;
        if constexpr (A != Arcs::none) {
            const Many in_star = from.star.from(k) * p_star;
            const Many loops = in_star * F::weights(self_loop, k);
            const Many bypass_here = F::weights(bypass, k);
            const Many bypasses = moved_down(in_star, star_after) * moved_down(bypass_here, bypass_after);
            if constexpr (A == Arcs::words) {
                const Many words = through_words<F>(w.word_to, word, k, in_star, star_after);
                out = sum(onward, loops, bypasses, words * F::weights(word_out, k));
            } else if constexpr (A == Arcs::graph) {
                out = sum(onward, loops, bypasses, word.from(k));
            } else {
                out = sum(onward, loops, bypasses);
            }
            star.set_from(k, in_star);
            to.star.set_from(k, settled<Settle>(sum(onward, in_star)));
            star_after = in_star;
            bypass_after = bypass_here;
        }
        to.blank.set_from(k, settled<Settle>(out));
        to.token.set_from(k, settled<Settle>(sum(out, in_token)));
        token_after = out_token;
    }
    for (int64_t i = first_repeat(g, reach.begin + 1); i < g.num_repeats; ++i) {
        const int64_t k = g.repeats[i] - 1;
        if (k >= reach.end) break;
        typename F::One x = sum(from.blank[k] * f.blank, from.token[k] * p[k]);
        if constexpr (A != Arcs::none)
            x = sum(x, star[k] * F::weight(self_loop, k), star[k + 1] * F::weight(bypass, k + 1));
        if constexpr (A == Arcs::words) {
            const bool near = kNearWords<F> && w.word_to[k] >= 0;
            x = sum(x, (near ? star[k / kStep<F> * kStep<F> + w.word_to[k]] : word[k]) * F::weight(word_out, k));
        }
        to.token.set(k, settled<Settle>(x));
    }
    if constexpr (A == Arcs::graph) {
        for (int64_t i = 0; i < g.jumps->num_repeats; ++i) {
            const int64_t k = g.jumps->repeats[i].position;
            if (k < reach.begin || k >= reach.end) continue;
            const typename F::One token = sum(from.token[k] * p[k], back_from_others<F>(g, from, p, i, band, reach));
            to.token.set(k, settled<Settle>(sum(from.blank[k] * f.blank, token, star_out_of<F>(g, w, k))));
        }
    }
    return reach;
}

// alpha · beta / total of one frame. The caller divides by their sum, not by the likelihood: both are equal except for
// rounding errors, which grow over thousands of frames.
//
// The band shrinks to where the posteriors of a vector of positions add up to F::irrelevant or more. What a cell
// outside can add to any earlier posterior is at most its own, so everything that is dropped is together below
// T · (U + 1) · irrelevant: 9e-14 of the gradient (float) for 500 frames and 200 tokens. For a sharp model the band is
// hardly wider than its alignment.
template <class F, Arcs A>
Occupancy<typename F::Real> occupancy(const States<F> alpha, const States<F> beta, const typename F::One unit_of_total,
                                      Band& band, const Workspace<F>& w) {
    using Real = typename F::Real;
    using V = Vector<Real>;
    const typename F::Many unit = F::everywhere(unit_of_total);
    V blank{}, token{}, star{};
    for (int64_t k = band.begin; k < band.end; k += kStep<F>) {
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
    const auto irrelevant = [&](int64_t k) { return sum_of_lanes<Real>(load<V>(w.any_count + k)) < F::irrelevant; };
    while (band.end - band.begin > kStep<F> && irrelevant(band.begin)) band.begin += kStep<F>;
    while (band.end - band.begin > kStep<F> && irrelevant(band.end - kStep<F>)) band.end -= kStep<F>;
    const Real in_blank = sum_of_lanes<Real>(blank), in_star = sum_of_lanes<Real>(star);
    return {in_blank, in_star, in_blank + in_star + sum_of_lanes<Real>(token)};
}

// Adds the posteriors of the ★ arcs that are taken into a frame, from alpha before the frame and w.star from `retreat`.
template <class F>
void count_arcs(const GraphFor<F>& g, const States<F> alpha, const typename F::One unit, const typename F::Real total,
                const Band band, const Workspace<F>& w) {
    using Many = typename F::Many;
    using V = Vector<typename F::Real>;
    const auto self_loop = g.self_loop, bypass = g.bypass;
    const typename F::Real share = 1 / total;
    const Many units = F::everywhere(unit);
    const auto either_at = [&](int64_t k) { return normalised(sum(alpha.blank.from(k), alpha.token.from(k))); };
    Many before = band.begin > 0 ? either_at(band.begin - kStep<F>) : F::everywhere(F::zero());
    for (int64_t k = band.begin; k < band.end; k += kStep<F>) {
        const Many either = either_at(k), onward = normalised(w.star.from(k)) * units;
        const V loops = plain(either * F::weights(self_loop, k) * onward) * share;
        const V bypasses = plain(moved_up(before, either) * F::weights(bypass, k) * onward) * share;
        store(w.self_loop + k, load<V>(w.self_loop + k) + loops);
        store(w.bypass + k, load<V>(w.bypass + k) + bypasses);
        before = either;
    }
    if (g.num_words == 0) return;
    for (int64_t i = g.next_word[g.farthest_back[band.begin]]; i < g.next_word[band.end]; ++i) {
        const WordArc& arc = g.words[i];
        if (arc.end < band.begin || arc.end >= band.end) continue;
        const typename F::One onward = normalised(w.star[arc.end]) * unit;
        const typename F::One either = normalised(sum(alpha.blank[arc.start], alpha.token[arc.start]));
        w.word[i] += plain(either * F::weight(g.word_in, arc.end) * onward) * share;
    }
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
