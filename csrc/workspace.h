// The memory of one utterance: which frames' alphas are kept, and where everything lies.
// Included by kernel.cpp only.
#pragma once

#include "lattice.h"
#include "vectors.h"

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

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

// Alphas and emissions are kept for one stretch of frames at a time: of the last stretch on the way forward; those of an
// earlier one are computed again, from the state at its start, when the betas get there. Two stretches are usual: half
// the memory, which then mostly fits the cache, for little work, because by then only few positions matter. There are
// more where positions are few or numbers long, to stay within 24 bytes a frame and position.
struct Stretches {
    int64_t count, frames;  // frames of each but the last, which takes what is left

    int64_t last_start() const { return (count - 1) * frames; }
};

template <class R>
Stretches stretches_of(int64_t frames, const Graph<R>& g) {
    const int64_t cell = (g.wildcards ? 4 : 3) * static_cast<int64_t>(sizeof(R) + sizeof(Int<R>));
    const int64_t allowed = 24 * (g.tokens + 1) - static_cast<int64_t>(sizeof(FrameScores<R>));
    const int64_t needed = cell * whole_vectors<R>(g.tokens + 1);
    int64_t count = 2;
    while (count < 8 && needed > count * allowed) ++count;
    const int64_t each = larger<int64_t>(1, (frames + count - 1) / count);
    return {larger<int64_t>(1, (frames + each - 1) / each), each};
}

template <class R>
struct Workspace {
    R *row, *relative, *token_count, *any_count;
    Numbers<R> either, all;   // forward: B + N, B + N + S. backward: P · beta of N, of S
    Numbers<R> word_source, word_target;  // B + N where a word starts, at its end; P · beta of S at its end, where it starts
    Numbers<R> beta;          // (2, states, positions)
    Numbers<R> alpha;         // (a stretch's frames + 1, states, positions); two rows are enough to go forward
    Numbers<R> starts;        // (stretches, states, positions): the state before each of them
    Numbers<R> emission;      // (a stretch's frames, positions)
    FrameScores<R>* scores;   // (frames)
    R *bypass, *self_loop, *word;  // arc counts of the current stretch of frames
    char* end;

    Workspace(Arena arena, const Frames& logits, const Graph<R>& g, bool backward) {
        const int64_t K = whole_vectors<R>(g.tokens + 1), states = g.wildcards ? 3 : 2;
        const Stretches s = backward ? stretches_of(logits.length, g) : Stretches{1, 1};
        row = arena.take<R>(logits.outputs);
        relative = arena.take<R>(logits.outputs);
        token_count = arena.take<R>(K);
        any_count = arena.take<R>(K);
        either = arena.numbers<R>(K);
        all = arena.numbers<R>(K);
        word_source = arena.numbers<R>(K);
        word_target = arena.numbers<R>(K);
        beta = arena.numbers<R>(2 * states * K);
        alpha = arena.numbers<R>((s.frames + 1) * states * K);
        starts = arena.numbers<R>(s.count * states * K);
        emission = arena.numbers<R>(s.frames * K);
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
    const int64_t K = whole_vectors<R>(g.tokens + 1);
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
    const int64_t K = whole_vectors<R>(g.tokens + 1);
    w.either.clear(-kLanes, K + kLanes);
    w.all.clear(-kLanes, K + kLanes);
    w.word_source.clear(0, K);
    w.word_target.clear(0, K);
}

template <class R>
void copy_states(Numbers<R> from, int64_t from_row, Numbers<R> to, int64_t to_row, const Graph<R>& g) {
    const size_t count = static_cast<size_t>((g.wildcards ? 3 : 2) * whole_vectors<R>(g.tokens + 1));
    const States<R> source = states_of(from, from_row, g), target = states_of(to, to_row, g);
    std::memcpy(target.blank.m, source.blank.m, count * sizeof(R));
    std::memcpy(target.blank.e, source.blank.e, count * sizeof(Int<R>));
}

}  // namespace
}  // namespace WILDCTC_ISA
}  // namespace wildctc
