// The lattice: forward, backward and gradient of one utterance.
//
// Three states a position k (B: in blank, N: in token y_k, S: in ★):
//
//   B_k' = P(blank) · (B_k + N_k + S_k)
//   N_k' = P(y_k)   · (N_k + B_{k-1} + S_{k-1} + [y_k ≠ y_{k-1}] N_{k-1})
//   S_k' = P(★)     · (S_k + self_k (B_k + N_k) + bypass_k (B_{k-1} + N_{k-1}) + word (B_s + N_s))
//
// The loops over positions take a vector of them at a time; repeated labels and word arcs are few, and are put right
// one by one after them. This file is compiled once per instruction set, in the namespace WILDCTC_ISA, with
// WILDCTC_VECTOR_BYTES the size of its vectors (undefined: no vector extensions, one number at a time).
#include <cmath>
#include <limits>

#include "rows.h"

#define WILDCTC_STRING(x) #x
#define WILDCTC_NAME(x) WILDCTC_STRING(x)

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

template <class R>
struct VectorOf;
template <>
struct VectorOf<float> {
    using type = FloatVector;
};
template <>
struct VectorOf<double> {
    using type = DoubleVector;
};
#else
template <class R>
struct VectorOf {
    using type = R;
};
#endif

namespace WILDCTC_ISA {
namespace {

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

// Positions [begin, end), both multiples of the vector width.
struct Band {
    int64_t begin, end;
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

// Alphas are kept for half of the frames at a time: for the second half on the way forward; those of the first half are
// computed again when the betas get there. That takes half the memory, which then mostly fits the cache, and costs
// little, because by then only few positions matter.
static int64_t frames_kept(int64_t frames) { return (frames + 1) / 2; }

template <class R>
struct Workspace {
    R *row, *gradient, *token_count, *any_count;
    Numbers<R> either, all;   // forward: B + N, B + N + S. backward: P · beta of N, of S
    Numbers<R> word_source, word_target;  // B + N where a word starts, at its end; P · beta of S at its end, where it starts
    Numbers<R> beta;          // (2, states, positions)
    Numbers<R> alpha;         // (kept + 1, states, positions); two rows are enough to go forward
    Numbers<R> emission;      // (kept, positions)
    FrameScores<R>* scores;   // (frames)
    R *bypass, *self_loop, *word;  // arc counts of the current stretch of frames
    char* end;

    Workspace(Arena arena, const Frames& logits, const Graph<R>& g, bool backward) {
        const int64_t K = g.positions, states = g.wildcards ? 3 : 2;
        const int64_t kept = backward ? frames_kept(logits.length) : 1;
        row = arena.take<R>(logits.outputs);
        gradient = arena.take<R>(logits.outputs);
        token_count = arena.take<R>(K);
        any_count = arena.take<R>(K);
        either = arena.numbers<R>(K);
        all = arena.numbers<R>(K);
        word_source = arena.numbers<R>(K);
        word_target = arena.numbers<R>(K);
        beta = arena.numbers<R>(2 * states * K);
        alpha = arena.numbers<R>((kept + 1) * states * K);
        emission = arena.numbers<R>(kept * K);
        scores = arena.take<FrameScores<R>>(backward ? logits.length : 1);
        bypass = arena.take<R>(K);
        self_loop = arena.take<R>(K);
        word = arena.take<R>(g.num_words);
        end = arena.end();
    }
};

template <class R>
int64_t workspace_bytes(const Frames& logits, const Graph<R>& g, bool backward) {
    char* const somewhere = reinterpret_cast<char*>(uintptr_t{64});  // only measured, never touched
    return Workspace<R>(Arena(somewhere), logits, g, backward).end - somewhere;
}

template <class R>
States<R> states_of(Numbers<R> rows, int64_t row, const Graph<R>& g) {
    const int64_t K = g.positions;
    const Numbers<R> first = rows.at(row * (g.wildcards ? 3 : 2) * K);
    return {first, first.at(K), first.at(g.wildcards ? 2 * K : K)};
}

template <class R>
void clear_states(const States<R>& s, int64_t first, int64_t last, const Graph<R>& g) {
    s.blank.clear(first, last);
    s.token.clear(first, last);
    if (g.wildcards) s.star.clear(first, last);
}

template <class R>
void prepare(const Workspace<R>& w, const Graph<R>& g) {
    w.either.clear(-kLanes, g.positions + kLanes);
    w.all.clear(-kLanes, g.positions + kLanes);
    w.word_source.clear(0, g.positions);
    w.word_target.clear(0, g.positions);
}

// ------------------------------------------------------------------------------------------------------ one frame

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
// The band shrinks to where a posterior is above Format::irrelevant. What a cell outside can add to any earlier
// posterior is at most its own, so all that is dropped together is below T · 3 (U + 1) · irrelevant: under 1e-9 (float)
// or 1e-22 (double) of the gradient for an hour of speech, and a sharp model leaves little more than its alignment.
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

// --------------------------------------------------------------------------------------------------- an utterance

template <class R>
void start_state(const States<R>& s, const Graph<R>& g) {
    clear_states(s, 0, g.positions, g);
    s.blank.set(0, {R(1), 0});
}

template <class R, Arcs A>
void advance_at(int64_t t, const Graph<R>& g, const States<R>& from, const States<R>& to, const Numbers<R>& p,
                const FrameScores<R>& f, int64_t end, const Workspace<R>& w) {
    const auto step = t % kSettle == kSettle - 1 ? advance<R, A, true> : advance<R, A, false>;
    step(g, from, to, p, f, end, w);
}

// One frame after another. The state before frame t goes to row(t) of w.alpha, and the frame's emissions and scores to
// where `emission_row` and `scores_of` say. False if a frame has no softmax.
template <class R, Arcs A, class Row, class EmissionRow, class ScoresOf>
bool run_forward(const Frames& logits, const Graph<R>& g, const Frames& gradient, const Workspace<R>& w, Row row,
                 EmissionRow emission_row, ScoresOf scores_of) {
    const int64_t whole = whole_vectors<R>(g.tokens + 1);
    prepare(w, g);
    start_state(states_of(w.alpha, row(0), g), g);
    int64_t reach = 0;  // no path has come farther yet
    for (int64_t t = 0; t < logits.length; ++t) {
        const R* x = load_row<R>(logits, t, w.row);
        FrameScores<R>& f = scores_of(t);
        R* relative = gradient_row<R>(gradient, t, w.gradient);
        if (!score_frame(x, logits.outputs, logits.blank, relative, f)) return false;
        reach = g.farthest_ahead[reach];
        const int64_t end = whole_vectors<R>(reach + 1);
        const Numbers<R> p = w.emission.at(emission_row(t) * g.positions);
        const States<R> next = states_of(w.alpha, row(t + 1), g);
        token_emissions(x, relative, g, f, end, p);
        advance_at<R, A>(t, g, states_of(w.alpha, row(t), g), next, p, f, end, w);
        clear_states(next, end, whole, g);
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
    const auto row = [](int64_t t) { return t % 2; };
    const auto only = [](int64_t) { return int64_t{0}; };
    const auto scores = [&](int64_t) -> FrameScores<R>& { return *w.scores; };
    if (!run_forward<R, A>(logits, g, Frames{}, w, row, only, scores)) return std::numeric_limits<double>::quiet_NaN();
    Scaled<R> total;
    return log_likelihood(states_of(w.alpha, row(logits.length), g), g, total);
}

template <class R>
void clear_counts(const Graph<R>& g, const Workspace<R>& w) {
    for (int64_t k = 0; k < g.positions; ++k) w.bypass[k] = w.self_loop[k] = 0;
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

// Alphas of frames [0, count) again, into rows 0…count of w.alpha, with their emissions, at positions [0, end): no path
// comes back from beyond the last position that matters.
template <class R, Arcs A>
void replay(const Frames& logits, const Graph<R>& g, const Frames& gradient, int64_t count, int64_t end,
            const Workspace<R>& w) {
    start_state(states_of(w.alpha, 0, g), g);
    for (int64_t t = 0; t < count; ++t) {
        const Numbers<R> p = w.emission.at(t * g.positions);
        const R* relative = in_place<R>(gradient) ? gradient_row<R>(gradient, t, w.gradient) : nullptr;
        const R* x = relative == nullptr || !w.scores[t].flat ? load_row<R>(logits, t, w.row) : nullptr;
        token_emissions(x, relative, g, w.scores[t], end, p);
        advance_at<R, A>(t, g, states_of(w.alpha, t, g), states_of(w.alpha, t + 1, g), p, w.scores[t], end, w);
    }
}

// What goes from frame to frame on the way back.
template <class R>
struct Backward {
    const Frames &logits, &gradient;
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
        if (b.gradient.data != nullptr) {
            R* row = gradient_row<R>(b.gradient, t, w.gradient);
            if (!in_place<R>(b.gradient))
                exponentials(load_row<R>(b.logits, t, w.row), b.logits.outputs, w.scores[t].max, row);
            finish_gradient(g, b.logits.outputs, b.logits.blank, w.scores[t], n, b.band, w.token_count, b.scale, row);
            store_row<R>(b.gradient, t, row);
        }
        const auto step = t % kSettle == 0 ? retreat<R, A, true> : retreat<R, A, false>;
        const Band reach = step(g, b.beta, b.earlier, w.emission.at(i * g.positions), w.scores[t], b.band, w);
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
    const int64_t T = logits.length, kept = frames_kept(T), half = T - kept;  // frames [half, T) are kept
    const auto row = [&](int64_t t) { return t >= half ? t - half : (half - t) % 2; };
    const auto emission_row = [&](int64_t t) { return t >= half ? t - half : 0; };
    const auto scores = [&](int64_t t) -> FrameScores<R>& { return w.scores[t]; };
    Scaled<R> total{R(1), 0};
    double result = std::numeric_limits<double>::quiet_NaN();
    if (run_forward<R, A>(logits, g, gradient, w, row, emission_row, scores))
        result = log_likelihood(states_of(w.alpha, row(T), g), g, total);
    if (!(result > -std::numeric_limits<double>::infinity())) {
        const R value = result != result && scale != 0 ? std::numeric_limits<R>::quiet_NaN() : R(0);
        if (gradient.data != nullptr) fill_frames<R>(gradient, 0, T, value, w.gradient);
    } else {
        const int64_t last = g.tokens / kWidth<R> * kWidth<R>;
        Backward<R> b{logits, gradient, g, w, counts, total.e, static_cast<R>(scale), states_of(w.beta, 0, g),
                      states_of(w.beta, 1, g), {last, last + kWidth<R>}};
        clear_states(b.beta, 0, g.positions, g);
        b.beta.blank.set(g.tokens, {R(1), 0});
        b.beta.token.set(g.tokens, {R(1), 0});
        if (A != Arcs::none) b.beta.star.set(g.tokens, {R(1), 0});
        run_backward<R, A>(b, half, kept);
        replay<R, A>(logits, g, gradient, half, b.band.end, w);
        run_backward<R, A>(b, 0, half);
    }
    if (gradient.data != nullptr) fill_frames<R>(gradient, T, gradient.allotted, R(0), w.gradient);
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
