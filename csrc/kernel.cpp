// The lattice of one utterance: its likelihood, gradient and arc counts.
//
// This file is compiled once per instruction set, in the namespace WILDCTC_ISA, with WILDCTC_VECTOR_BYTES the size of its
// vectors (undefined: no vector extensions, one number at a time).
#include <cmath>
#include <limits>

#include "recursion.h"
#include "rows.h"

#define WILDCTC_STRING(x) #x
#define WILDCTC_NAME(x) WILDCTC_STRING(x)

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

template <class R>
void start_state(const States<R>& s, const Graph<R>& g) {
    clear_states(s, 0, whole_vectors<R>(g.tokens + 1), g);
    s.blank.set(0, {R(1), 0});
}

template <class R, Arcs A>
void advance_at(int64_t t, const Graph<R>& g, const States<R>& from, const States<R>& to, const Numbers<R>& p,
                const FrameScores<R>& f, int64_t end, const Workspace<R>& w) {
    const auto step = t % kSettle == kSettle - 1 ? advance<R, A, true> : advance<R, A, false>;
    step(g, from, to, p, f, end, w);
}

// Where the numbers of a frame go on the way forward.
template <class R>
struct Places {
    const Graph<R>& g;
    const Workspace<R>& w;
    const Frames gradient;   // e^(logit − max) stands in its rows until the gradient does
    const Stretches stretches;
    const bool keep;         // false: nothing but the last state is needed

    // the state before frame t: kept from the last stretch's start on, which is row 0, before that two rows in turn
    States<R> state(int64_t t) const { return states_of(w.alpha, row(t), g); }
    int64_t row(int64_t t) const {
        const int64_t start = stretches.last_start();
        return !keep ? t % 2 : t >= start ? t - start : (start - t) % 2;
    }
    Numbers<R> emission(int64_t t) const {
        const int64_t start = stretches.last_start();
        return w.emission.at(keep && t >= start ? (t - start) * whole_vectors<R>(g.tokens + 1) : 0);
    }
    FrameScores<R>& scores(int64_t t) const { return w.scores[keep ? t : 0]; }
    R* relative(int64_t t) const { return gradient.data != nullptr ? row_of<R>(gradient, t) : w.relative; }
};

// All frames, one after another. False if one has no softmax.
template <class R, Arcs A>
bool run_forward(const Frames& logits, const Places<R>& at) {
    const Graph<R>& g = at.g;
    const int64_t whole = whole_vectors<R>(g.tokens + 1);
    prepare(at.w, g);
    start_state(at.state(0), g);
    int64_t reach = 0;  // no path has come farther yet
    for (int64_t t = 0; t < logits.length; ++t) {
        if (at.keep && t % at.stretches.frames == 0)
            copy_states(at.w.alpha, at.row(t), at.w.starts, t / at.stretches.frames, g);
        const R* x = load_row<R>(logits, t, at.w.row);
        FrameScores<R>& f = at.scores(t);
        if (!score_frame(x, logits.outputs, logits.blank, at.relative(t), f)) return false;
        reach = g.farthest_ahead[reach];
        const int64_t end = whole_vectors<R>(reach + 1);
        token_emissions(x, at.relative(t), g, f, end, at.emission(t));
        advance_at<R, A>(t, g, at.state(t), at.state(t + 1), at.emission(t), f, end, at.w);
        clear_states(at.state(t + 1), end, whole, g);
    }
    return true;
}

template <class R>
double log_likelihood(const States<R>& last, const Graph<R>& g, Scaled<R>& total) {
    total = sum(last.blank[g.tokens], last.token[g.tokens]);
    if (g.wildcards) total = sum(total, last.star[g.tokens]);
    total = normalised(total);
    if (is_zero(total)) return -std::numeric_limits<double>::infinity();
    return std::log(static_cast<double>(total.m)) + static_cast<double>(total.e) * 0.69314718055994530942;
}

template <class R, Arcs A>
double forward_with(const Frames& logits, const Graph<R>& g, char* memory) {
    const Workspace<R> w(Arena(memory), logits, g, false);
    const Places<R> at{g, w, Frames{}, {1, 1}, false};
    if (!run_forward<R, A>(logits, at)) return std::numeric_limits<double>::quiet_NaN();
    Scaled<R> total;
    return log_likelihood(at.state(logits.length), g, total);
}

template <class R>
void clear_counts(const Graph<R>& g, const Workspace<R>& w) {
    for (int64_t k = 0; k < whole_vectors<R>(g.tokens + 1); ++k) w.bypass[k] = w.self_loop[k] = 0;
    for (int64_t i = 0; i < g.num_words; ++i) w.word[i] = 0;
}

template <class R>
void flush_counts(const Graph<R>& g, double scale, const ArcCounts& counts, const Workspace<R>& w) {
    for (int64_t k = 0; k <= g.tokens; ++k) {
        if (counts.self_loop != nullptr) counts.self_loop[k] += static_cast<double>(w.self_loop[k]) * scale;
        if (counts.bypass != nullptr && k > 0) counts.bypass[k - 1] += static_cast<double>(w.bypass[k]) * scale;
    }
    for (int64_t i = 0; counts.word != nullptr && i < g.num_words; ++i)
        counts.word[g.words[i].word] += static_cast<double>(w.word[i]) * scale;
}

// Alphas of the stretch [first, first + count) again, into rows 0…count of w.alpha, with their emissions, at positions
// [0, end): no path comes back from beyond the last position that matters.
template <class R, Arcs A>
void replay(const Frames& logits, const Places<R>& at, int64_t first, int64_t count, int64_t end) {
    const Graph<R>& g = at.g;
    const Workspace<R>& w = at.w;
    copy_states(w.starts, first / at.stretches.frames, w.alpha, 0, g);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t t = first + i;
        const Numbers<R> p = w.emission.at(i * whole_vectors<R>(g.tokens + 1));
        const R* relative = at.gradient.data != nullptr ? at.relative(t) : nullptr;
        const R* x = relative == nullptr || !w.scores[t].flat ? load_row<R>(logits, t, w.row) : nullptr;
        token_emissions(x, relative, g, w.scores[t], end, p);
        advance_at<R, A>(t, g, states_of(w.alpha, i, g), states_of(w.alpha, i + 1, g), p, w.scores[t], end, w);
    }
}

// What goes from frame to frame on the way back.
template <class R>
struct Backward {
    const Frames logits, gradient;
    const Graph<R>& g;
    const Workspace<R>& w;
    const ArcCounts& counts;
    const Int<R> total_e;
    const R scale;
    States<R> beta, earlier;
    Band band;

    bool counting() const { return counts.bypass != nullptr || counts.self_loop != nullptr || counts.word != nullptr; }
};

// Frames [first, first + count), whose alphas and emissions are in the workspace.
template <class R, Arcs A>
void run_backward(Backward<R>& b, int64_t first, int64_t count) {
    const Graph<R>& g = b.g;
    const Workspace<R>& w = b.w;
    if (b.counting()) clear_counts(g, w);
    for (int64_t i = count - 1; i >= 0; --i) {
        const int64_t t = first + i;
        const Occupancy<R> n = occupancy<R, A>(states_of(w.alpha, i + 1, g), b.beta, b.total_e, b.band, w);
        if (b.gradient.data != nullptr)
            finish_gradient(g, b.logits.outputs, b.logits.blank, w.scores[t], n, b.band, w.token_count, b.scale,
                            row_of<R>(b.gradient, t));
        const auto step = t % kSettle == 0 ? retreat<R, A, true> : retreat<R, A, false>;
        const Band reach = step(g, b.beta, b.earlier, w.emission.at(i * whole_vectors<R>(g.tokens + 1)), w.scores[t],
                                b.band, w);
        if (A != Arcs::none && b.counting()) count_arcs(g, states_of(w.alpha, i, g), b.total_e, n.total, b.band, w);
        b.band = reach;
        const States<R> last = b.beta;
        b.beta = b.earlier;
        b.earlier = last;
    }
    if (b.counting()) flush_counts(g, static_cast<double>(b.scale), b.counts, w);
}

template <class R, Arcs A>
double forward_backward_with(const Frames& logits, const Graph<R>& g, const Frames& gradient, double scale,
                             const ArcCounts& counts, char* memory) {
    const Workspace<R> w(Arena(memory), logits, g, true);
    const int64_t T = logits.length;
    const Places<R> at{g, w, gradient, stretches_of(T, g), true};
    Scaled<R> total{R(1), 0};
    double result = std::numeric_limits<double>::quiet_NaN();
    if (run_forward<R, A>(logits, at)) result = log_likelihood(at.state(T), g, total);
    if (!(result > -std::numeric_limits<double>::infinity())) {
        const R value = result != result ? std::numeric_limits<R>::quiet_NaN() : R(0);
        if (gradient.data != nullptr) fill_rows<R>(gradient, 0, T, value);
    } else {
        const int64_t last = g.tokens / kWidth<R> * kWidth<R>;
        Backward<R> b{logits, gradient, g, w, counts, total.e, static_cast<R>(scale), states_of(w.beta, 0, g),
                      states_of(w.beta, 1, g), {last, last + kWidth<R>}};
        clear_states(b.beta, 0, whole_vectors<R>(g.tokens + 1), g);
        b.beta.blank.set(g.tokens, {R(1), 0});
        b.beta.token.set(g.tokens, {R(1), 0});
        if (A != Arcs::none) b.beta.star.set(g.tokens, {R(1), 0});
        const int64_t start = at.stretches.last_start();
        run_backward<R, A>(b, start, T - start);
        for (int64_t first = start - at.stretches.frames; first >= 0; first -= at.stretches.frames) {
            replay<R, A>(logits, at, first, at.stretches.frames, b.band.end);
            run_backward<R, A>(b, first, at.stretches.frames);
        }
    }
    if (gradient.data != nullptr) fill_rows<R>(gradient, T, gradient.allotted, R(0));
    return result;
}

template <class R>
double forward(const Frames& logits, const Graph<R>& g, char* memory) {
    const auto run = !g.wildcards ? forward_with<R, Arcs::none>
                     : g.num_words == 0 ? forward_with<R, Arcs::tokens> : forward_with<R, Arcs::words>;
    return run(logits, g, memory);
}

template <class R>
double forward_backward(const Frames& logits, const Graph<R>& g, const Frames& gradient, double scale,
                        const ArcCounts& counts, char* memory) {
    const auto run = !g.wildcards ? forward_backward_with<R, Arcs::none>
                     : g.num_words == 0 ? forward_backward_with<R, Arcs::tokens> : forward_backward_with<R, Arcs::words>;
    return run(logits, g, gradient, scale, counts, memory);
}

}  // namespace

Kernels kernels() {
    return {{workspace_bytes<float>, forward<float>, forward_backward<float>},
            {workspace_bytes<double>, forward<double>, forward_backward<double>},
            WILDCTC_NAME(WILDCTC_ISA)};
}

}  // namespace WILDCTC_ISA
}  // namespace wildctc
