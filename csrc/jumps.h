// Transcript graphs that are no chain: what the loops of recursion.h cannot reach. Included by kernel.cpp only.
//
// Position k of a graph is its token arc k − 1, and position 0 is the start. Every position has the three numbers B, N and S
// of a chain: B and S of a state are split over the arcs that lead into it, by the arc through which a path came. They add up
// to B and S of the state, because each term of their recursion has one of them as its factor. So a graph is a chain whose
// position k is entered from other positions than k − 1 too, or from others only. Most of a real graph is a chain. Where it
// is not, at a junction, the sum over the arcs into a state is taken once, and handed to all arcs out of it, one by one,
// before the loops over vectors: time grows with the number of arcs, not of pairs of them.
//
// Two things are special:
// - An arc that repeats the label of an arc into its source does not take that arc's N: its sum is taken for it alone.
// - A word arc can lead to any position of its last state. It leads to the last one, which comes after all its sources. If
//   it is the only jump there, and the only one from its source, it is among Graph::words, as in a chain.
#pragma once

#include "softmax.h"
#include "workspace.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

// Of chains it is not read.
template <bool graph, class R>
Weighting<R> entering(const Graph<R>& g) {
    if constexpr (graph) return g.jumps->enter;
    return {nullptr, nullptr, nullptr};
}

// What the sources of a junction hold: all of it, and without S, which a wildcard does not take.
template <class F>
struct Held {
    typename F::One either, all;
};

// Most junctions are small: a word begins to be written in two ways, or ends. They are computed without branches.
template <class F>
WILDCTC_INLINE Held<F> held_at_small(const GraphFor<F>& g, const States<F>& from, int64_t junction) {
    const int64_t a = g.jumps->junctions[junction].a, b = g.jumps->junctions[junction].b;
    const typename F::One second = F::weight(g.jumps->second, junction);
    const typename F::One either = normalised(sum(sum(from.blank[a], from.token[a]), sum(from.blank[b], from.token[b]) * second));
    return {either, normalised(sum(either, from.star[a], from.star[b] * second))};
}

template <class F>
WILDCTC_INLINE Held<F> held_at(const GraphFor<F>& g, const States<F>& from, int64_t junction) {
    const Jumps<typename F::Logit>& j = *g.jumps;
    if (j.junctions[junction].small) return held_at_small<F>(g, from, junction);
    const int32_t first = j.junctions[junction].sources, end = j.junctions[junction + 1].sources;
    const int64_t at = j.sources[first];
    typename F::One either = sum(from.blank[at], from.token[at]), star = from.star[at];
    for (int32_t i = first + 1; i < end; ++i) {
        const int64_t k = j.sources[i];
        either = normalised(sum(either, from.blank[k], from.token[k]));
        star = normalised(sum(star, from.star[k]));
    }
    return {normalised(either), normalised(sum(either, star))};
}

// What they send into a token arc whose label some of them have.
template <class F>
typename F::One sent_to_repeat(const GraphFor<F>& g, const States<F>& from, int64_t junction, int32_t label) {
    const Jumps<typename F::Logit>& j = *g.jumps;
    typename F::One total = F::zero();
    for (int32_t i = j.junctions[junction].sources; i < j.junctions[junction + 1].sources; ++i) {
        const int64_t k = j.sources[i];
        const typename F::One here = sum(from.blank[k], from.star[k]);
        total = normalised(sum(total, k > 0 && g.label[k] == label ? here : sum(here, from.token[k])));
    }
    return total;
}

// As send_through_words of a chain, for token arcs, bypasses and word arcs.
template <class F>
void send_over_jumps(const GraphFor<F>& g, const States<F> from, const Band band, const Workspace<F>& w) {
    const Jumps<typename F::Logit>& j = *g.jumps;
    const int64_t first = g.farthest_back[band.begin], words = g.next_word[band.end];
    const auto word_in = g.word_in, token = j.token, bypass = j.bypass, word = j.word;
    const typename F::Array token_source = w.token_source, word_source = w.word_source, junction = w.junction;
    for (int64_t i = g.next_word[first]; i < words; ++i) {
        const int64_t start = g.words[i].start, k = g.words[i].end;
        word_source.set(k, normalised(sum(from.blank[start], from.token[start]) * F::weight(word_in, k)));
    }
    const int64_t count = j.complete[band.end];
    for (int64_t i = j.complete[first]; i < count; ++i) {
        const Held<F> held = held_at<F>(g, from, i);
        junction.set(i, held.either);
        if (j.junctions[i].small) {
            const int64_t k = j.junctions[i].target;
            token_source.set(k, normalised(held.all * F::weight(token, k)));
            word_source.set(k, normalised(held.either * F::weight(bypass, k)));
            continue;
        }
        for (int32_t t = j.junctions[i].targets; t < j.junctions[i + 1].targets; ++t) {
            const int64_t k = j.targets[t];
            const typename F::One in = j.same_label[t] ? sent_to_repeat<F>(g, from, i, g.label[k]) : held.all;
            token_source.set(k, normalised(in * F::weight(token, k)));
            word_source.set(k, normalised(held.either * F::weight(bypass, k)));
        }
    }
    for (int64_t i = j.words_before[band.begin]; i < j.words_before[band.end]; ++i) {
        const typename F::One in = junction[j.word_jumps[i].start] * F::weight(word, i);
        const int64_t k = j.word_jumps[i].end;
        word_source.set(k, normalised(j.adds[i] ? sum(word_source[k], in) : in));
    }
}

// As send_back_through_words of a chain.
template <class F>
void send_back_over_jumps(const GraphFor<F>& g, const States<F> from, const typename F::Array p, typename F::One star,
                          Band band, Band reach, const Workspace<F>& w) {
    const Jumps<typename F::Logit>& j = *g.jumps;
    const int64_t words = g.next_word[band.end];
    for (int64_t i = g.next_word[reach.begin]; i < words; ++i) {
        const int64_t k = g.words[i].end;
        const bool inside = k >= band.begin && k < band.end;
        w.word_target.set(g.words[i].start, inside ? normalised(from.star[k] * star * F::weight(g.word_in, k)) : F::zero());
    }
    const int64_t first = j.complete[reach.begin], last = j.begun[band.end];
    for (int64_t i = first; i < last; ++i) w.junction.set(i, F::zero());
    for (int64_t i = j.words_before[band.begin]; i < j.words_before[band.end]; ++i) {
        const int64_t at = j.word_jumps[i].start;
        w.junction.set(at, normalised(sum(w.junction[at], from.star[j.word_jumps[i].end] * F::weight(j.word, i))));
    }
    for (int64_t i = first; i < last; ++i) {
        typename F::One tokens = F::zero(), stars = w.junction[i];
        if (const Junction& at = j.junctions[i]; at.small) {
            const int64_t k = at.target;
            if (k >= band.begin && k < band.end) {
                tokens = normalised(from.token[k] * p[k] * F::weight(j.token, k));
                stars = normalised(sum(stars, from.star[k] * F::weight(j.bypass, k)));
            }
            stars = normalised(stars * star);
            w.token_target.set(at.a, tokens);
            w.token_target.set(at.b, tokens);
            w.word_target.set(at.a, stars);
            w.word_target.set(at.b, stars);
            continue;
        }
        for (int32_t t = j.junctions[i].targets; t < j.junctions[i + 1].targets; ++t) {
            const int64_t k = j.targets[t];
            if (k < band.begin || k >= band.end) continue;
            tokens = normalised(sum(tokens, from.token[k] * p[k] * F::weight(j.token, k)));
            stars = normalised(sum(stars, from.star[k] * F::weight(j.bypass, k)));
        }
        stars = normalised(stars * star);
        for (int32_t s = j.junctions[i].sources; s < j.junctions[i + 1].sources; ++s) {
            w.token_target.set(j.sources[s], tokens);
            w.word_target.set(j.sources[s], stars);
        }
    }
}

// P · beta of the token arcs out of a position that do not repeat its label. `repeat`: the number of the position's entry.
template <class F>
typename F::One back_from_others(const GraphFor<F>& g, const States<F> from, const typename F::Array p, int64_t repeat,
                                 Band band, Band reach) {
    const Jumps<typename F::Logit>& j = *g.jumps;
    const int64_t k = j.repeats[repeat].position, i = j.repeats[repeat].junction;
    typename F::One total = F::zero();
    if (k + 1 < reach.end) total = from.token[k + 1] * p[k + 1] * F::weight(j.enter, k + 1);
    for (int32_t t = j.junctions[i].targets; t < j.junctions[i + 1].targets; ++t) {
        const int64_t to = j.targets[t];
        if (to < band.begin || to >= band.end || g.label[to] == g.label[k]) continue;
        total = normalised(sum(total, from.token[to] * p[to] * F::weight(j.token, to)));
    }
    return total;
}

// P · beta of all ★ arcs out of a position, after w.star and w.word_target have been filled.
template <class F>
typename F::One star_out_of(const GraphFor<F>& g, const Workspace<F>& w, int64_t k) {
    return sum(w.star[k] * F::weight(g.self_loop, k), w.star[k + 1] * F::weight(g.bypass, k + 1), w.word_target[k]);
}

// The counts that count_arcs leaves out: token arcs, and what jumps. `beta` and p: of N, after the frame.
template <class F>
void count_jumps(const GraphFor<F>& g, const States<F> alpha, const typename F::Array beta, const typename F::Array p,
                 const typename F::One unit, const typename F::Real total, const Band band, const Workspace<F>& w) {
    using Many = typename F::Many;
    using Real = typename F::Real;
    const Jumps<typename F::Logit>& j = *g.jumps;
    const Real share = 1 / total;
    const auto all_at = [&](int64_t k) { return normalised(sum(alpha.blank.from(k), alpha.token.from(k), alpha.star.from(k))); };
    Many before = band.begin > 0 ? all_at(band.begin - kStep<F>) : F::everywhere(F::zero());
    for (int64_t k = band.begin; k < band.end; k += kStep<F>) {
        const Many all = all_at(k), onward = normalised(beta.from(k) * p.from(k)) * F::everywhere(unit);
        const Vector<Real> tokens = plain(moved_up(before, all) * F::weights(j.enter, k) * onward) * share;
        store(w.token + k, load<Vector<Real>>(w.token + k) + tokens);
        before = all;
    }
    for (int64_t i = j.complete[g.farthest_back[band.begin]]; i < j.complete[band.end]; ++i) {
        const Held<F> held = held_at<F>(g, alpha, i);
        w.junction.set(i, held.either);
        for (int32_t t = j.junctions[i].targets; t < j.junctions[i + 1].targets; ++t) {
            const int64_t k = j.targets[t];
            if (k < band.begin || k >= band.end) continue;
            const typename F::One in = j.same_label[t] ? sent_to_repeat<F>(g, alpha, i, g.label[k]) : held.all;
            w.token[k] += plain(normalised(in * F::weight(j.token, k)) * (normalised(beta[k] * p[k]) * unit)) * share;
            w.bypass[k] += plain(normalised(held.either * F::weight(j.bypass, k)) * (normalised(w.star[k]) * unit)) * share;
        }
    }
    for (int64_t i = j.words_before[band.begin]; i < j.words_before[band.end]; ++i) {
        const typename F::One in = normalised(w.junction[j.word_jumps[i].start] * F::weight(j.word, i));
        w.word[g.num_words + i] += plain(in * (normalised(w.star[j.word_jumps[i].end]) * unit)) * share;
    }
}

template <class F>
typename F::One total_of_ends(const States<F>& last, const GraphFor<F>& g) {
    const Jumps<typename F::Logit>& j = *g.jumps;
    typename F::One total = F::zero();
    for (int64_t i = 0; i < j.num_ends; ++i) {
        const int64_t k = j.ends[i];
        total = normalised(sum(total, sum(last.blank[k], last.token[k], last.star[k]) * F::weight(j.final, i)));
    }
    return total;
}

// Where the band of the last frame begins; it ends with the last position. A chain ends at that position only.
template <class F>
int64_t first_end(const GraphFor<F>& g) {
    int64_t first = g.tokens;
    if (g.jumps != nullptr)
        for (int64_t i = 0; i < g.jumps->num_ends; ++i) first = g.jumps->ends[i] < first ? g.jumps->ends[i] : first;
    return first / kStep<F> * kStep<F>;
}

// The betas after the last frame.
template <class F>
void start_at_ends(const States<F>& beta, const GraphFor<F>& g) {
    const Jumps<typename F::Logit>& j = *g.jumps;
    for (int64_t i = 0; i < j.num_ends; ++i) {
        const int64_t k = j.ends[i];
        beta.blank.set(k, F::weight(j.final, i));
        beta.token.set(k, F::weight(j.final, i));
        beta.star.set(k, F::weight(j.final, i));
    }
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
