// The lattice: forward, backward and gradient of one utterance.
//
// Three states a position k (B: in blank, N: in token y_k, S: in ★):
//
//   B_k' = P(blank) · (B_k + N_k + S_k)
//   N_k' = P(y_k)   · (N_k + B_{k-1} + S_{k-1} + [y_k ≠ y_{k-1}] N_{k-1})
//   S_k' = P(★)     · (S_k + self_k (B_k + N_k) + bypass_k (B_{k-1} + N_{k-1}) + word (B_s + N_s))
//
// The loops over positions are vectorised by the compiler; repeated labels and word arcs are few, and are put right
// one by one after them. This file is compiled once per instruction set, in the namespace WILDCTC_ISA.
#include <cmath>
#include <limits>

#include "rows.h"

#define WILDCTC_STRING(x) #x
#define WILDCTC_NAME(x) WILDCTC_STRING(x)
#define SIMD _Pragma("omp simd")
#define SIMD_REDUCTION(...) _Pragma(WILDCTC_STRING(omp simd __VA_ARGS__))

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

// Numbers over positions, as two arrays.
template <class R>
struct Numbers {
    R* m;
    Int<R>* e;

    Scaled<R> operator[](int64_t k) const { return {m[k], e[k]}; }
    void set(int64_t k, Scaled<R> x) const {
        m[k] = x.m;
        e[k] = x.e;
    }
    void clear(int64_t from, int64_t to) const {
        for (int64_t k = from; k < to; ++k) set(k, {R(1), Format<R>::zero});
    }
    Numbers at(int64_t offset) const { return {m + offset, e + offset}; }
};

#include "softmax.h"

// One row of alphas or betas. Without wildcards there is no star row, and `star` is not read.
template <class R>
struct States {
    Numbers<R> blank, token, star;
};

class Arena {
  public:
    explicit Arena(char* block) : next_(block) {}

    template <class T>
    T* take(int64_t count) {
        T* result = reinterpret_cast<T*>(next_);
        next_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return result;
    }

    // with room for a guard on either side, so that k − 1 and k + 1 may be read at the ends
    template <class R>
    Numbers<R> numbers(int64_t count) {
        return Numbers<R>{take<R>(count + 2 * kLanes), take<Int<R>>(count + 2 * kLanes)}.at(kLanes);
    }

    char* end() const { return next_; }

  private:
    char* next_;
};

template <class R>
struct Workspace {
    R *row, *gradient, *token_count;
    Numbers<R> either, all;   // forward: B + N, B + N + S. backward: P · beta of N, of S
    Numbers<R> emission;      // (segment, positions)
    FrameScores<R>* scores;   // (segment)
    Numbers<R> alpha, beta;   // (segment + 1, states, positions), (2, states, positions)
    R *bypass, *self_loop, *word;  // arc counts of the current segment

    Workspace(Arena arena, const Graph<R>& g, int64_t outputs, int64_t segment) {
        const int64_t K = g.positions, states = g.wildcards ? 3 : 2;
        row = arena.take<R>(outputs);
        gradient = arena.take<R>(outputs);
        token_count = arena.take<R>(K);
        either = arena.numbers<R>(K);
        all = arena.numbers<R>(K);
        emission = arena.numbers<R>(segment * K);
        scores = arena.take<FrameScores<R>>(segment);
        alpha = arena.numbers<R>((segment + 1) * states * K);
        beta = arena.numbers<R>(2 * states * K);
        bypass = arena.take<R>(K);
        self_loop = arena.take<R>(K);
        word = arena.take<R>(g.num_words);
        end = arena.end();
    }

    char* end;
};

template <class R>
int64_t workspace_bytes(const Graph<R>& g, int64_t outputs, int64_t segment) {
    char* const somewhere = reinterpret_cast<char*>(uintptr_t{64});  // only measured, never touched
    return Workspace<R>(Arena(somewhere), g, outputs, segment).end - somewhere;
}

template <class R>
States<R> states_of(Numbers<R> rows, int64_t row, const Graph<R>& g) {
    const int64_t K = g.positions;
    const Numbers<R> first = rows.at(row * (g.wildcards ? 3 : 2) * K);
    return {first, first.at(K), first.at(g.wildcards ? 2 * K : K)};
}

template <class R>
void clear_states(const States<R>& s, const Graph<R>& g) {
    s.blank.clear(0, g.positions);
    s.token.clear(0, g.positions);
    if (g.wildcards) s.star.clear(0, g.positions);
}

template <class R>
void prepare(const Workspace<R>& w, const Graph<R>& g, int64_t segment) {
    w.either.clear(-kLanes, g.positions + kLanes);
    w.all.clear(-kLanes, g.positions + kLanes);
    w.emission.clear(0, segment * g.positions);
}

// ------------------------------------------------------------------------------------------------------ one frame

template <class R, bool Wild>
void advance(const Graph<R>& g, const States<R>& from, const States<R>& to, const Numbers<R>& p,
             const FrameScores<R>& f, const Workspace<R>& w) {
    const int64_t K = g.positions;
    const Numbers<R> either = w.either, all = w.all;
    SIMD
    for (int64_t k = 0; k < K; ++k) {
        const Scaled<R> c = from.blank[k] + from.token[k];
        if (Wild) either.set(k, c);
        all.set(k, Wild ? c + from.star[k] : c);
    }
    SIMD
    for (int64_t k = 0; k < K; ++k) {
        to.blank.set(k, normalised(all[k] * f.blank));
        to.token.set(k, normalised((from.token[k] + all[k - 1]) * p[k]));
    }
    if (Wild) {
        SIMD
        for (int64_t k = 0; k < K; ++k) {
            const Scaled<R> loop = either[k] * Scaled<R>{g.self_m[k], g.self_e[k]};
            const Scaled<R> bypass = either[k - 1] * Scaled<R>{g.bypass_m[k], g.bypass_e[k]};
            to.star.set(k, normalised((from.star[k] + (loop + bypass)) * f.star));
        }
    }
    for (int64_t i = 0; i < g.num_repeats; ++i) {
        const int64_t k = g.repeats[i];
        Scaled<R> x = from.token[k] + from.blank[k - 1];
        if (Wild) x = x + from.star[k - 1];
        to.token.set(k, normalised(x * p[k]));
    }
    for (int64_t i = 0; Wild && i < g.num_words; ++i) {
        const WordArc<R>& arc = g.words[i];
        to.star.set(arc.end, normalised(to.star[arc.end] + either[arc.start] * arc.weight * f.star));
    }
}

// Betas from after a frame to before it. Leaves P · beta of N in w.either and of S in w.all.
template <class R, bool Wild>
void retreat(const Graph<R>& g, const States<R>& from, const States<R>& to, const Numbers<R>& p,
             const FrameScores<R>& f, const Workspace<R>& w) {
    const int64_t K = g.positions;
    const Numbers<R> token = w.either, star = w.all;
    const auto arcs = [&](int64_t k) {
        return star[k] * Scaled<R>{g.self_m[k], g.self_e[k]} +
               star[k + 1] * Scaled<R>{g.bypass_m[k + 1], g.bypass_e[k + 1]};
    };
    SIMD
    for (int64_t k = 0; k < K; ++k) {
        token.set(k, from.token[k] * p[k]);
        if (Wild) {
            const Scaled<R> s = from.star[k] * f.star;
            star.set(k, {s.m, larger<Int<R>>(s.e, Format<R>::zero)});
        }
    }
    SIMD
    for (int64_t k = 0; k < K; ++k) {
        const Scaled<R> onward = from.blank[k] * f.blank + token[k + 1];
        const Scaled<R> out = Wild ? onward + arcs(k) : onward;
        to.blank.set(k, normalised(out));
        to.token.set(k, normalised(out + token[k]));
        if (Wild) to.star.set(k, normalised(onward + star[k]));
    }
    for (int64_t i = 0; i < g.num_repeats; ++i) {
        const int64_t k = g.repeats[i] - 1;
        Scaled<R> x = from.blank[k] * f.blank + token[k];
        if (Wild) x = x + arcs(k);
        to.token.set(k, normalised(x));
    }
    for (int64_t i = 0; Wild && i < g.num_words; ++i) {
        const WordArc<R>& arc = g.words[i];
        const Scaled<R> x = star[arc.end] * arc.weight;
        to.blank.set(arc.start, normalised(to.blank[arc.start] + x));
        to.token.set(arc.start, normalised(to.token[arc.start] + x));
    }
}

// alpha · beta / total of one frame. They are divided by their own sum, not by the likelihood: the two are equal but
// for rounding, which over thousands of frames would otherwise be seen.
template <class R, bool Wild>
Occupancy<R> occupancy(const Graph<R>& g, const States<R>& alpha, const States<R>& beta, Int<R> total_e,
                       R* token_count) {
    const Scaled<R> unit{R(1), -total_e};
    R blank = 0, token = 0, star = 0;
    SIMD_REDUCTION(reduction(+ : blank, token, star))
    for (int64_t k = 0; k < g.positions; ++k) {
        blank += plain(alpha.blank[k] * beta.blank[k] * unit);
        const R n = plain(alpha.token[k] * beta.token[k] * unit);
        token_count[k] = n;
        token += n;
        if (Wild) star += plain(alpha.star[k] * beta.star[k] * unit);
    }
    return {blank, star, blank + token + star};
}

// Adds the posteriors of the ★ arcs taken between two frames: alpha before the frame, and w.all as retreat left it.
template <class R>
void count_arcs(const Graph<R>& g, const States<R>& alpha, Int<R> total_e, R total, const Workspace<R>& w) {
    const Numbers<R> either = w.either, star = w.all;
    const R share = R(1) / total;
    const Scaled<R> unit{R(1), -total_e};
    SIMD
    for (int64_t k = 0; k < g.positions; ++k) either.set(k, alpha.blank[k] + alpha.token[k]);
    SIMD
    for (int64_t k = 0; k < g.positions; ++k) {
        const Scaled<R> onward = star[k] * unit;
        w.self_loop[k] += plain(either[k] * Scaled<R>{g.self_m[k], g.self_e[k]} * onward) * share;
        w.bypass[k] += plain(either[k - 1] * Scaled<R>{g.bypass_m[k], g.bypass_e[k]} * onward) * share;
    }
    for (int64_t i = 0; i < g.num_words; ++i) {
        const WordArc<R>& arc = g.words[i];
        w.word[i] += plain(either[arc.start] * arc.weight * star[arc.end] * unit) * share;
    }
}

// --------------------------------------------------------------------------------------------------- an utterance

template <class R>
void copy_states(const States<R>& from, const States<R>& to, const Graph<R>& g) {
    for (int64_t k = 0; k < g.positions; ++k) {
        to.blank.set(k, from.blank[k]);
        to.token.set(k, from.token[k]);
        if (g.wildcards) to.star.set(k, from.star[k]);
    }
}

template <class R>
void start_state(const States<R>& s, const Graph<R>& g) {
    clear_states(s, g);
    s.blank.set(0, {R(1), 0});
}

template <class R, bool Wild>
bool run_forward(const Frames& logits, const Graph<R>& g, int64_t segment, const Saved<R>& saved,
                 const Workspace<R>& w, States<R>& state) {
    States<R> next = states_of(w.alpha, 1, g);
    for (int64_t t = 0; t < logits.length; ++t) {
        if (saved.alpha_m != nullptr && t > 0 && t % segment == 0)
            copy_states(state, states_of(Numbers<R>{saved.alpha_m, saved.alpha_e}, t / segment - 1, g), g);
        const R* x = load_row<R>(logits, t, w.row);
        R max, sum;
        if (!row_stats(x, logits.outputs, logits.blank, max, sum)) return false;
        if (saved.alpha_m != nullptr) {
            saved.row_max[t] = max;
            saved.row_sum[t] = sum;
        }
        const FrameScores<R> f = frame_scores(x[logits.blank], max, sum, logits.outputs);
        token_emissions(x, g, f, w.emission);
        advance<R, Wild>(g, state, next, w.emission, f, w);
        const States<R> last = state;
        state = next;
        next = last;
    }
    return true;
}

template <class R>
void forward(const Frames& logits, const Graph<R>& g, int64_t segment, const Saved<R>& saved, char* memory) {
    const Workspace<R> w(Arena(memory), g, logits.outputs, segment);
    prepare(w, g, 1);
    States<R> state = states_of(w.alpha, 0, g);
    start_state(state, g);
    clear_states(states_of(w.alpha, 1, g), g);
    const bool ok = g.wildcards ? run_forward<R, true>(logits, g, segment, saved, w, state)
                                : run_forward<R, false>(logits, g, segment, saved, w, state);
    Summary& out = *saved.summary;
    if (!ok) {
        out = {std::numeric_limits<double>::quiet_NaN(), 0, 0, Outcome::nan};
        return;
    }
    Scaled<R> total = state.blank[g.tokens] + state.token[g.tokens];
    if (g.wildcards) total = total + state.star[g.tokens];
    const double log_likelihood = std::log(static_cast<double>(total.m)) + static_cast<double>(total.e) * 0.69314718055994530942;
    if (is_zero(total)) {
        out = {-std::numeric_limits<double>::infinity(), 0, 0, Outcome::infeasible};
    } else {
        out = {log_likelihood, static_cast<double>(total.m), static_cast<int64_t>(total.e), Outcome::feasible};
    }
}

template <class R>
void flush_counts(const Graph<R>& g, const ArcCounts& counts, const Workspace<R>& w) {
    for (int64_t k = 0; k <= g.tokens; ++k) {
        if (counts.self_loop != nullptr) counts.self_loop[k] += static_cast<double>(w.self_loop[k]);
        if (counts.bypass != nullptr && k > 0) counts.bypass[k - 1] += static_cast<double>(w.bypass[k]);
    }
    for (int64_t i = 0; counts.word != nullptr && i < g.num_words; ++i)
        counts.word[g.words[i].word] += static_cast<double>(w.word[i]);
}

// Alphas of a segment's frames into w.alpha (row i: before its frame i), with the emissions beside them.
template <class R, bool Wild>
void replay(const Frames& logits, const Graph<R>& g, const Saved<R>& saved, int64_t first, int64_t count,
            int64_t segment, const Workspace<R>& w) {
    const States<R> start = states_of(w.alpha, 0, g);
    if (first == 0) {
        start_state(start, g);
    } else {
        copy_states(states_of(Numbers<R>{saved.alpha_m, saved.alpha_e}, first / segment - 1, g), start, g);
    }
    for (int64_t i = 0; i < count; ++i) {
        const int64_t t = first + i;
        const R* x = load_row<R>(logits, t, w.row);
        const Numbers<R> p = w.emission.at(i * g.positions);
        w.scores[i] = frame_scores(x[logits.blank], saved.row_max[t], saved.row_sum[t], logits.outputs);
        token_emissions(x, g, w.scores[i], p);
        advance<R, Wild>(g, states_of(w.alpha, i, g), states_of(w.alpha, i + 1, g), p, w.scores[i], w);
    }
}

template <class R, bool Wild>
void run_backward(const Frames& logits, const Graph<R>& g, int64_t segment, const Saved<R>& saved,
                  const Frames& gradient, R scale, const ArcCounts& counts, const Workspace<R>& w) {
    const Int<R> total_e = static_cast<Int<R>>(saved.summary->total_e);
    const bool arcs_wanted = counts.bypass != nullptr || counts.self_loop != nullptr || counts.word != nullptr;
    States<R> beta = states_of(w.beta, 0, g), earlier = states_of(w.beta, 1, g);
    clear_states(beta, g);
    beta.blank.set(g.tokens, {R(1), 0});
    beta.token.set(g.tokens, {R(1), 0});
    if (Wild) beta.star.set(g.tokens, {R(1), 0});
    for (int64_t first = (logits.length - 1) / segment * segment; first >= 0; first -= segment) {
        const int64_t count = logits.length - first < segment ? logits.length - first : segment;
        replay<R, Wild>(logits, g, saved, first, count, segment, w);
        for (int64_t k = 0; k < g.positions; ++k) w.bypass[k] = w.self_loop[k] = 0;
        for (int64_t i = 0; i < g.num_words; ++i) w.word[i] = 0;
        for (int64_t i = count - 1; i >= 0; --i) {
            const int64_t t = first + i;
            const Occupancy<R> n = occupancy<R, Wild>(g, states_of(w.alpha, i + 1, g), beta, total_e, w.token_count);
            if (gradient.data != nullptr) {
                R* row = gradient_row<R>(gradient, t, w.gradient);
                gradient_row_of(load_row<R>(logits, t, w.row), g, logits.outputs, logits.blank, saved.row_max[t],
                                saved.row_sum[t], n, w.token_count, scale, row);
                store_row<R>(gradient, t, row);
            }
            retreat<R, Wild>(g, beta, earlier, w.emission.at(i * g.positions), w.scores[i], w);
            if (Wild && arcs_wanted) count_arcs(g, states_of(w.alpha, i, g), total_e, n.total, w);
            const States<R> last = beta;
            beta = earlier;
            earlier = last;
        }
        flush_counts(g, counts, w);
    }
}

template <class R>
void backward(const Frames& logits, const Graph<R>& g, int64_t segment, const Saved<R>& saved, const Frames& gradient,
              double scale, const ArcCounts& counts, char* memory) {
    const Workspace<R> w(Arena(memory), g, logits.outputs, segment);
    const Outcome outcome = saved.summary->outcome;
    const bool write = gradient.data != nullptr;
    if (outcome != Outcome::feasible || scale == 0 || logits.length == 0) {
        const bool nan = outcome == Outcome::nan && scale != 0;
        if (write) fill_frames<R>(gradient, 0, logits.length, nan ? std::numeric_limits<R>::quiet_NaN() : R(0), w.gradient);
    } else {
        prepare(w, g, segment);
        if (g.wildcards) {
            run_backward<R, true>(logits, g, segment, saved, gradient, static_cast<R>(scale), counts, w);
        } else {
            run_backward<R, false>(logits, g, segment, saved, gradient, static_cast<R>(scale), counts, w);
        }
    }
    if (write) fill_frames<R>(gradient, logits.length, gradient.allotted, R(0), w.gradient);
}

}  // namespace

Kernels kernels() {
    return {{workspace_bytes<float>, forward<float>, backward<float>},
            {workspace_bytes<double>, forward<double>, backward<double>},
            WILDCTC_NAME(WILDCTC_ISA)};
}

}  // namespace WILDCTC_ISA
}  // namespace wildctc
