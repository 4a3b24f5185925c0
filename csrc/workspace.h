// The memory of one utterance: for which frames alphas are kept, and where each array is.
// Included by kernel.cpp only.
#pragma once

#include "formats.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

// One row of alphas or betas. Without wildcards there is no star row, and `star` is not read.
template <class F>
struct States {
    typename F::Array blank, token, star;
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

    void take_numbers(int64_t count, PlainArray& out) { out = {take<double>(count)}; }
    template <class R>
    void take_numbers(int64_t count, ScaledArray<R>& out) {
        out = {take<R>(count), take<Int<R>>(count)};
    }

    char* end() const { return next_; }

  private:
    char* next_;
};

// Alphas and emissions are kept for one stretch of frames at a time. The forward pass keeps those of the last stretch. Those
// of an earlier stretch are computed again, from the state at its start, when the backward pass reaches it. Usually the last
// stretch has as many frames as 24 bytes per frame and position are enough for, and the first has the rest. A transcript of up
// to 5 tokens needs more than that: up to 152 bytes a frame, 92 for its scores and a twelfth of 8 positions of 64 bytes. With a
// limit of memory there are more: about the root of the number of frames take the least.
struct Stretches {
    int64_t count, frames;  // of each except the first, which has the rest
    int64_t rest;

    int64_t start(int64_t i) const { return i == 0 ? 0 : rest + (i - 1) * frames; }
    int64_t last_start() const { return start(count - 1); }
    int64_t length(int64_t i) const { return i == 0 ? rest : frames; }
    bool begins_at(int64_t t) const { return t == 0 || (t >= rest && (t - rest) % frames == 0); }
    int64_t number(int64_t t) const { return t < rest ? 0 : 1 + (t - rest) / frames; }
};

template <class F>
using GraphFor = Graph<typename F::Logit>;

inline Stretches stretches_with(int64_t frames, int64_t each) {
    const int64_t count = larger<int64_t>(1, (frames + each - 1) / each);
    return {count, each, frames - (count - 1) * each};
}

inline Stretches equal_stretches(int64_t frames, int64_t count) {
    return stretches_with(frames, larger<int64_t>(1, (frames + count - 1) / count));
}

constexpr int64_t kOtherRows = 8;  // betas, starts of stretches and other arrays over positions, in rows of a frame

template <class F>
Stretches usual_stretches(int64_t frames, const GraphFor<F>& g) {
    const int64_t cell = (g.wildcards ? 4 : 3) * static_cast<int64_t>(sizeof(typename F::One));
    const int64_t allowed = 24 * (g.tokens + 1) - static_cast<int64_t>(sizeof(FrameScores<typename F::Logit>));
    const int64_t needed = cell * whole<F>(g.tokens + 1);
    const int64_t each = larger(frames * allowed / needed - kOtherRows, (frames + 11) / 12);
    return stretches_with(frames, larger<int64_t>(1, each < frames ? each : frames));
}

// Words that start and end in the same vector of positions, or in neighbouring ones, are sent within the registers that hold
// them, if vectors are long enough to hold most words. Others are far, and are sent through memory, one by one.
template <class F>
constexpr bool kNearWords = kStep<F> >= 8;

template <class F>
bool near_words(const GraphFor<F>& g) {
    return kNearWords<F> && g.jumps == nullptr && g.num_words > 0;
}

template <class F>
struct Workspace {
    using Logit = typename F::Logit;
    using Real = typename F::Real;

    Logit *row, *relative;
    Real *token_count, *any_count;
    Logit* token_share;
    typename F::Array word_source, word_target;  // B + N where a word starts, at its end; P · beta of S at its end, where it starts
    Int<Real> *word_from, *word_to;  // of near words, at their ends and starts: the lane of the other end; −1: a far word's (near_words)
    int32_t* far;                // far words: how many, and their numbers
    typename F::Array token_source, token_target;  // the same for token arcs; of graphs only (jumps.h)
    typename F::Array junction;  // a sum for each junction
    typename F::Array star;      // backward: P · beta of S, for the arcs' counts
    typename F::Array beta;      // (2, states, positions)
    typename F::Array alpha;     // (a stretch's frames + 1, states, positions); two rows are enough without a backward pass
    typename F::Array starts;    // (stretches, states, positions): the state before each of them
    typename F::Array emission;  // (a stretch's frames, positions)
    FrameScores<Logit>* scores;  // (frames)
    int32_t* first;              // (frames + 1): the first position that is needed before each frame, and after the last
    Real *bypass, *self_loop, *word, *token;  // arc counts since they were last cleared
    char* end;

    Workspace(Arena arena, const Frames& logits, const GraphFor<F>& g, const Stretches& s, bool backward) {
        const int64_t K = whole<F>(g.tokens + 1), states = g.wildcards ? 3 : 2;
        row = arena.take<Logit>(logits.outputs);
        relative = arena.take<Logit>(logits.outputs);
        token_count = arena.take<Real>(K);
        any_count = arena.take<Real>(K);
        token_share = arena.take<Logit>(K);
        arena.take_numbers(K, word_source);
        arena.take_numbers(K, word_target);
        word_from = arena.take<Int<Real>>(near_words<F>(g) ? K : 0);
        word_to = arena.take<Int<Real>>(near_words<F>(g) ? K : 0);
        far = arena.take<int32_t>(near_words<F>(g) ? g.num_words + 1 : 0);
        arena.take_numbers(g.jumps != nullptr ? K : 0, token_source);
        arena.take_numbers(g.jumps != nullptr ? K : 0, token_target);
        arena.take_numbers(g.jumps != nullptr ? g.jumps->count : 0, junction);
        arena.take_numbers(K + kStep<F>, star);
        arena.take_numbers(2 * states * K, beta);
        arena.take_numbers((s.frames + 1) * states * K, alpha);
        arena.take_numbers(s.count * states * K, starts);
        arena.take_numbers(s.frames * K, emission);
        scores = arena.take<FrameScores<Logit>>(backward ? logits.length : 1);
        first = arena.take<int32_t>(logits.length + 1);
        bypass = arena.take<Real>(K);
        self_loop = arena.take<Real>(K);
        word = arena.take<Real>(g.num_words + (g.jumps != nullptr ? g.jumps->num_word_jumps : 0));
        token = arena.take<Real>(g.jumps != nullptr ? K : 0);
        end = arena.end();
    }
};

template <class F>
int64_t bytes_in(const Frames& logits, const GraphFor<F>& g, const Stretches& s, bool backward) {
    char* const somewhere = reinterpret_cast<char*>(uintptr_t{64});  // used to measure, never accessed
    return Workspace<F>(Arena(somewhere), logits, g, s, backward).end - somewhere;
}

// The fewest stretches that fit into the limit; where none do, those that take the least memory.
template <class F>
Stretches stretches_of(const Frames& logits, const GraphFor<F>& g, int64_t limit) {
    Stretches best = usual_stretches<F>(logits.length, g);
    int64_t least = bytes_in<F>(logits, g, best, true);
    for (int64_t count = best.count + 1; least > limit && count < logits.length; count += 1 + count / 8) {
        const Stretches s = equal_stretches(logits.length, count);
        const int64_t bytes = bytes_in<F>(logits, g, s, true);
        if (bytes > least && s.count > s.frames) break;
        if (bytes < least) {
            least = bytes;
            best = s;
        }
    }
    return best;
}

template <class F>
int64_t bytes_for(const Frames& logits, const GraphFor<F>& g, bool backward, int64_t limit) {
    return bytes_in<F>(logits, g, backward ? stretches_of<F>(logits, g, limit) : Stretches{1, 1, 1}, backward);
}

template <class F>
States<F> states_of(typename F::Array rows, int64_t row, const GraphFor<F>& g) {
    const int64_t K = whole<F>(g.tokens + 1);
    const typename F::Array first = rows.at(row * (g.wildcards ? 3 : 2) * K);
    return {first, first.at(K), first.at(g.wildcards ? 2 * K : K)};
}

template <class F>  // [first, last): whole vectors
void clear_states(const States<F>& s, int64_t first, int64_t last, const GraphFor<F>& g) {
    clear_vectors<F>(s.blank, first, last);
    clear_vectors<F>(s.token, first, last);
    if (g.wildcards) clear_vectors<F>(s.star, first, last);
}

template <class F>
void find_near_words(const Workspace<F>& w, const GraphFor<F>& g) {
    constexpr int64_t step = kStep<F>;
    for (int64_t k = 0; k < whole<F>(g.tokens + 1); ++k) w.word_from[k] = w.word_to[k] = 0;
    int32_t count = 0;
    for (int64_t i = 0; i < g.num_words; ++i) {
        const int64_t start = g.words[i].start, end = g.words[i].end, from = start - (end / step - 1) * step;
        const bool near = from >= 0;
        w.word_from[end] = near ? static_cast<Int<typename F::Real>>(from) : -1;
        w.word_to[start] = near ? static_cast<Int<typename F::Real>>(end - start / step * step) : -1;
        if (!near) w.far[++count] = static_cast<int32_t>(i);
    }
    w.far[0] = count;
}

template <class F>
void prepare(const Workspace<F>& w, const GraphFor<F>& g) {
    const int64_t K = whole<F>(g.tokens + 1);
    if (near_words<F>(g)) find_near_words<F>(w, g);
    clear_vectors<F>(w.word_source, 0, K);
    clear_vectors<F>(w.word_target, 0, K);
    clear_vectors<F>(w.star, 0, K + kStep<F>);
    if (g.jumps == nullptr) return;
    clear_vectors<F>(w.token_source, 0, K);
    clear_vectors<F>(w.token_target, 0, K);
}

template <class F>
void copy_states(typename F::Array from, int64_t from_row, typename F::Array to, int64_t to_row, const GraphFor<F>& g) {
    const int64_t count = (g.wildcards ? 3 : 2) * whole<F>(g.tokens + 1);
    states_of<F>(to, to_row, g).blank.copy_from(states_of<F>(from, from_row, g).blank, count);
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
