// The lattice of one utterance: its likelihood, gradient and arc counts.
//
// This file is compiled once per instruction set, in the namespace WILDCTC_ISA, with WILDCTC_VECTOR_BYTES the size of its
// vectors (undefined: no vector extensions, one number at a time).
#include <cmath>
#include <limits>

#include "narrow.h"
#include "rows.h"

#define WILDCTC_STRING(x) #x
#define WILDCTC_NAME(x) WILDCTC_STRING(x)

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

enum class Outcome { done, no_softmax, out_of_range };

template <class F>
void start_state(const States<F>& s, const GraphFor<F>& g) {
    clear_states<F>(s, 0, whole<F>(g.tokens + 1), g);
    s.blank.set(0, F::one());
}

template <class F, Arcs A>
void advance_at(int64_t t, const GraphFor<F>& g, const States<F>& from, const States<F>& to, const typename F::Array& p,
                const FrameScores<typename F::Logit>& f, const Band& band, const Workspace<F>& w) {
    const auto step = t % kSettle == kSettle - 1 ? advance<F, A, true> : advance<F, A, false>;
    step(g, from, to, p, Emissions<F>(f), band, w);
}

// Where the forward pass stores the numbers of each frame.
template <class F>
struct Places {
    using Logit = typename F::Logit;

    const GraphFor<F>& g;
    const Workspace<F>& w;
    const Frames gradient;   // its rows hold e^(logit − max) until the gradient is written
    const Stretches stretches;
    const bool keep;         // false: only the last state is needed

    // the state before frame t: one row each from the start of the last stretch on (row 0); two rows in turn before it
    States<F> state(int64_t t) const { return states_of<F>(w.alpha, row(t), g); }
    int64_t row(int64_t t) const {
        const int64_t start = stretches.last_start();
        return !keep ? t % 2 : t >= start ? t - start : (start - t) % 2;
    }
    typename F::Array emission(int64_t t) const {
        const int64_t start = stretches.last_start();
        return w.emission.at(keep && t >= start ? (t - start) * whole<F>(g.tokens + 1) : 0);
    }
    FrameScores<Logit>& scores(int64_t t) const { return w.scores[keep ? t : 0]; }
    // [begin, end) of the positions before frame t that are needed
    Band needed(int64_t t, int64_t end) const { return {w.first[t], larger(end, int64_t{w.first[t]})}; }
    Logit* relative(int64_t t) const { return gradient.data != nullptr ? row_of<Logit>(gradient, t) : w.relative; }
};

// Finds where a band can begin, before each of the frames [first, last], from where it begins after them: no arc leads to the
// band from an earlier position.
template <class F>
void find_first_needed(const GraphFor<F>& g, int64_t begin, int64_t first, int64_t last, const Workspace<F>& w) {
    for (int64_t t = last; t >= first; --t) {
        w.first[t] = static_cast<int32_t>(begin);
        begin = reach_of<F>(g, {begin, begin}).begin;
    }
}

// The forward pass over all frames.
template <class F, Arcs A>
Outcome run_forward(const Frames& logits, const Places<F>& at, RangeWatch& watch) {
    using Logit = typename F::Logit;
    const GraphFor<F>& g = at.g;
    const int64_t K = whole<F>(g.tokens + 1);
    prepare<F>(at.w, g);
    find_first_needed<F>(g, first_end<F>(g), 0, logits.length, at.w);
    start_state<F>(at.state(0), g);
    int64_t reach = 0;  // the last position that a path has reached
    for (int64_t t = 0; t < logits.length; ++t) {
        fetch_row<Logit>(logits, t + 2);
        fetch_row<Logit>(at.gradient, t + 2);
        if (at.keep && at.stretches.begins_at(t))
            copy_states<F>(at.w.alpha, at.row(t), at.w.starts, at.stretches.number(t), g);
        reach = g.farthest_ahead[reach];
        const int64_t end = whole<F>(reach + 1);
        const Band before = at.needed(t, end), after = at.needed(t + 1, end);
        send_through_words<F, A>(g, at.state(t), after, at.w);
        const Logit* x = load_row<Logit>(logits, t, at.w.row);
        FrameScores<Logit>& f = at.scores(t);
        if (!score_frame(x, logits.outputs, logits.blank, at.relative(t), f)) return Outcome::no_softmax;
        if constexpr (F::limited) {
            if (t % kSettle == 0 && !watch.rescale(at.state(t), before, g.wildcards, f)) return Outcome::out_of_range;
            if (!watch.step(f, g.least_weight, g.least_enter)) return Outcome::out_of_range;
        }
        token_emissions(x, at.relative(t), g, f, before, at.emission(t));
        advance_at<F, A>(t, g, at.state(t), at.state(t + 1), at.emission(t), f, after, at.w);
        clear_states<F>(at.state(t + 1), after.end, K, g);
    }
    return Outcome::done;
}

template <class F>
typename F::One total_of(const States<F>& last, const GraphFor<F>& g) {
    if (g.jumps != nullptr) return total_of_ends<F>(last, g);
    const typename F::One total = sum(last.blank[g.tokens], last.token[g.tokens]);
    return normalised(g.wildcards ? sum(total, last.star[g.tokens]) : total);
}

// False if the range of the numbers was too small.
template <class R>
bool log_likelihood(Scaled<R> total, const RangeWatch&, const Frames&, const Graph<R>&, double& result) {
    result = is_zero(total) ? -std::numeric_limits<double>::infinity()
                            : std::log(static_cast<double>(total.m)) + static_cast<double>(total.e) * 0.69314718055994530942;
    return true;
}

bool log_likelihood(double total, const RangeWatch& watch, const Frames& logits, const Graph<float>& g, double& result) {
    return watch.log_likelihood(total, logits.length, g, result);
}

// The likelihood of all frames, and in `result` its logarithm.
template <class F, Arcs A>
Outcome likelihood(const Frames& logits, const Places<F>& at, typename F::One& total, double& result) {
    RangeWatch watch;
    const Outcome outcome = run_forward<F, A>(logits, at, watch);
    result = std::numeric_limits<double>::quiet_NaN();
    if (outcome != Outcome::done) return outcome;
    total = total_of<F>(at.state(logits.length), at.g);
    return log_likelihood(total, watch, logits, at.g, result) ? Outcome::done : Outcome::out_of_range;
}

template <class F, Arcs A>
Outcome forward_with(const Frames& logits, const GraphFor<F>& g, char* memory, double& result) {
    const Workspace<F> w(Arena(memory), logits, g, {1, 1, 1}, false);
    typename F::One total;
    return likelihood<F, A>(logits, Places<F>{g, w, Frames{}, {1, 1, 1}, false}, total, result);
}

template <class F>
void clear_counts(const GraphFor<F>& g, const Workspace<F>& w) {
    for (int64_t k = 0; k < whole<F>(g.tokens + 1); ++k) w.bypass[k] = w.self_loop[k] = 0;
    for (int64_t i = 0; i < g.num_words; ++i) w.word[i] = 0;
    if (g.jumps == nullptr) return;
    for (int64_t k = 0; k < whole<F>(g.tokens + 1); ++k) w.token[k] = 0;
    for (int64_t i = 0; i < g.jumps->num_word_jumps; ++i) w.word[g.num_words + i] = 0;
}

template <class F>
void flush_counts(const GraphFor<F>& g, double scale, const ArcCounts& counts, const Workspace<F>& w) {
    for (int64_t k = 0; k <= g.tokens; ++k) {
        const int64_t state = g.jumps != nullptr ? g.jumps->state[k] : k;
        if (counts.self_loop.wanted()) counts.self_loop[state] += static_cast<double>(w.self_loop[k]) * scale;
        if (counts.bypass.wanted() && k > 0) counts.bypass[k - 1] += static_cast<double>(w.bypass[k]) * scale;
    }
    for (int64_t i = 0; counts.word.wanted() && i < g.num_words; ++i)
        counts.word[g.words[i].word] += static_cast<double>(w.word[i]) * scale;
    if (g.jumps == nullptr) return;
    for (int64_t i = 0; counts.word.wanted() && i < g.jumps->num_word_jumps; ++i)
        counts.word[g.jumps->word_jumps[i].word] += static_cast<double>(w.word[g.num_words + i]) * scale;
    for (int64_t k = 1; counts.token.wanted() && k <= g.tokens; ++k)
        counts.token[k - 1] += static_cast<double>(w.token[k]) * scale;
}

// Computes the alphas of the stretch [first, first + count) again, with their emissions, into rows 0…count of w.alpha, at the
// positions from which the band after it can be reached.
template <class F, Arcs A>
void replay(const Frames& logits, const Places<F>& at, int64_t first, int64_t count, const Band& band) {
    using Logit = typename F::Logit;
    const GraphFor<F>& g = at.g;
    const Workspace<F>& w = at.w;
    find_first_needed<F>(g, band.begin, first, first + count, w);
    copy_states<F>(w.starts, at.stretches.number(first), w.alpha, 0, g);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t t = first + i;
        const typename F::Array p = w.emission.at(i * whole<F>(g.tokens + 1));
        const Band before = at.needed(t, band.end), after = at.needed(t + 1, band.end);
        send_through_words<F, A>(g, states_of<F>(w.alpha, i, g), after, w);
        const Logit* relative = at.gradient.data != nullptr ? at.relative(t) : nullptr;
        const Logit* x = nullptr;
        if (relative == nullptr || !w.scores[t].flat) {
            x = load_row<Logit>(logits, t, w.row);
            if constexpr (F::limited) {  // without a gradient, e^(logit − max) was not kept
                for (int64_t v = 0; v < logits.outputs; ++v) w.relative[v] = exp_nonpositive(x[v] - w.scores[t].max);
                relative = w.relative;
            }
        }
        token_emissions(x, relative, g, w.scores[t], before, p);
        advance_at<F, A>(t, g, states_of<F>(w.alpha, i, g), states_of<F>(w.alpha, i + 1, g), p, w.scores[t], after, w);
    }
}

// The state of the backward pass.
template <class F>
struct Backward {
    const Frames logits, gradient;
    const GraphFor<F>& g;
    const Workspace<F>& w;
    const ArcCounts& counts;
    const typename F::One unit;
    const typename F::Logit scale;
    States<F> beta, earlier;
    Band band;

    bool counting() const {
        return counts.bypass.wanted() || counts.self_loop.wanted() || counts.word.wanted() || counts.token.wanted();
    }
};

// Frames [first, first + count), whose alphas and emissions are in the workspace. False if the numbers had too little
// range.
template <class F, Arcs A>
bool run_backward(Backward<F>& b, int64_t first, int64_t count) {
    using Logit = typename F::Logit;
    const GraphFor<F>& g = b.g;
    const Workspace<F>& w = b.w;
    for (int64_t i = count - 1; i >= 0; --i) {
        const int64_t t = first + i;
        fetch_row<Logit>(b.gradient, t - 2);
        const Emissions<F> f(w.scores[t]);
        const typename F::Array p = w.emission.at(i * whole<F>(g.tokens + 1));
        send_back_through_words<F, A>(g, b.beta, p, f, b.band, w);
        const auto n = occupancy<F, A>(states_of<F>(w.alpha, i + 1, g), b.beta, b.unit, b.band, w);
        if (F::limited && !(std::abs(n.total - 1) < 1e-8)) return false;
        if (b.gradient.data != nullptr)
            finish_gradient(g, b.logits.outputs, b.logits.blank, w.scores[t], n, b.band, w.token_count, w.token_share,
                            b.scale, row_of<Logit>(b.gradient, t));
        const auto step = t % kSettle == 0 ? retreat<F, A, true> : retreat<F, A, false>;
        const Band reach = step(g, b.beta, b.earlier, p, f, b.band, w);
        if (A != Arcs::none && b.counting()) {
            const States<F> alpha = states_of<F>(w.alpha, i, g);
            count_arcs<F>(g, alpha, b.unit, n.total, b.band, w);
            if constexpr (A == Arcs::graph) count_jumps<F>(g, alpha, b.beta.token, p, b.unit, n.total, b.band, w);
        }
        b.band = reach;
        const States<F> last = b.beta;
        b.beta = b.earlier;
        b.earlier = last;
    }
    return true;
}

// The backward pass over all stretches, the last first.
template <class F, Arcs A>
bool run_all_backward(Backward<F>& b, const Places<F>& at) {
    const Stretches& s = at.stretches;
    for (int64_t i = s.count - 1; i >= 0; --i) {
        const int64_t first = s.start(i);
        const bool last = i == s.count - 1;
        if (!last) replay<F, A>(b.logits, at, first, s.length(i), b.band);
        // counts in single precision are added to the result after each stretch; plain doubles at the end, when their
        // range is known to have been enough
        if (b.counting() && (last || !F::limited)) clear_counts<F>(b.g, b.w);
        if (!run_backward<F, A>(b, first, s.length(i))) return false;
        if (b.counting() && (first == 0 || !F::limited)) flush_counts<F>(b.g, static_cast<double>(b.scale), b.counts, b.w);
    }
    return true;
}

template <class F, Arcs A>
Outcome forward_backward_with(const Frames& logits, const GraphFor<F>& g, const Frames& gradient, double scale,
                              const ArcCounts& counts, char* memory, int64_t limit, double& result) {
    using Logit = typename F::Logit;
    const Stretches stretches = stretches_of<F>(logits, g, limit);
    const Workspace<F> w(Arena(memory), logits, g, stretches, true);
    const int64_t T = logits.length;
    const Places<F> at{g, w, gradient, stretches, true};
    typename F::One total = F::one();
    const Outcome outcome = likelihood<F, A>(logits, at, total, result);
    if (outcome == Outcome::out_of_range) return outcome;
    if (!(result > -std::numeric_limits<double>::infinity())) {
        const Logit value = result != result ? std::numeric_limits<Logit>::quiet_NaN() : Logit(0);
        if (gradient.data != nullptr) fill_rows<Logit>(gradient, 0, T, value);
    } else {
        const int64_t last = g.tokens / kStep<F> * kStep<F>;
        Backward<F> b{logits, gradient, g, w, counts, F::unit(total), static_cast<Logit>(scale),
                      states_of<F>(w.beta, 0, g), states_of<F>(w.beta, 1, g), {first_end<F>(g), last + kStep<F>}};
        clear_states<F>(b.beta, 0, whole<F>(g.tokens + 1), g);
        if constexpr (A == Arcs::graph) {
            start_at_ends<F>(b.beta, g);
        } else {
            b.beta.blank.set(g.tokens, F::one());
            b.beta.token.set(g.tokens, F::one());
            if (A != Arcs::none) b.beta.star.set(g.tokens, F::one());
        }
        if (!run_all_backward<F, A>(b, at)) return Outcome::out_of_range;
    }
    if (gradient.data != nullptr) fill_rows<Logit>(gradient, T, gradient.allotted, Logit(0));
    return outcome;
}

template <class F>
Outcome forward_in(const Frames& logits, const GraphFor<F>& g, char* memory, double& result) {
    const auto run = g.jumps != nullptr ? forward_with<F, Arcs::graph>
                     : !g.wildcards ? forward_with<F, Arcs::none>
                     : g.num_words == 0 ? forward_with<F, Arcs::tokens> : forward_with<F, Arcs::words>;
    return run(logits, g, memory, result);
}

template <class F>
Outcome forward_backward_in(const Frames& logits, const GraphFor<F>& g, const Frames& gradient, double scale,
                            const ArcCounts& counts, char* memory, int64_t limit, double& result) {
    const auto run = g.jumps != nullptr ? forward_backward_with<F, Arcs::graph>
                     : !g.wildcards ? forward_backward_with<F, Arcs::none>
                     : g.num_words == 0 ? forward_backward_with<F, Arcs::tokens> : forward_backward_with<F, Arcs::words>;
    return run(logits, g, gradient, scale, counts, memory, limit, result);
}

// In single precision, plain numbers are tried first.
template <class R>
double forward(const Frames& logits, const Graph<R>& g, char* memory) {
    double result;
    if constexpr (sizeof(R) == sizeof(float)) {
        const FlushToZero guard;
        if (g.tame && forward_in<Narrow>(logits, g, memory, result) != Outcome::out_of_range) return result;
    }
    forward_in<Wide<R>>(logits, g, memory, result);
    return result;
}

template <class R>
double forward_backward(const Frames& logits, const Graph<R>& g, const Frames& gradient, double scale,
                        const ArcCounts& counts, char* memory, int64_t limit) {
    double result;
    if constexpr (sizeof(R) == sizeof(float)) {
        const FlushToZero guard;
        if (g.tame && forward_backward_in<Narrow>(logits, g, gradient, scale, counts, memory, limit, result) != Outcome::out_of_range)
            return result;
    }
    forward_backward_in<Wide<R>>(logits, g, gradient, scale, counts, memory, limit, result);
    return result;
}

template <class R>
int64_t workspace_bytes(const Frames& logits, const Graph<R>& g, bool backward, int64_t limit) {
    const int64_t wide = bytes_for<Wide<R>>(logits, g, backward, limit);
    if constexpr (sizeof(R) == sizeof(float)) return larger(wide, bytes_for<Narrow>(logits, g, backward, limit));
    return wide;
}

}  // namespace

Kernels kernels() {
    return {{workspace_bytes<float>, forward<float>, forward_backward<float>},
            {workspace_bytes<double>, forward<double>, forward_backward<double>},
            advance_paths,
            WILDCTC_NAME(WILDCTC_ISA)};
}

}  // namespace WILDCTC_ISA
}  // namespace wildctc
