// Loss, gradient and best path of a batch. The utterances are distributed over threads.
#pragma once

#include "batch.h"
#include "budget.h"

namespace wildctc {

enum class Reduction : int { none = 0, mean = 1, sum = 2 };

// Counts of a family of arcs, (N, width), or of all its arcs together, (N).
struct CountRows {
    double* data;        // null: not wanted
    int64_t width;       // −1: of all arcs together

    Counts row(int64_t n) const {
        if (data == nullptr) return {nullptr, 0};
        return width < 0 ? Counts{data + n, 0} : Counts{data + n * width, 1};
    }
};

struct LossResult {
    void* losses;        // (N): negative log-likelihoods, double for double logits, else float
    void* reduced;       // (1): their mean or sum, of the same type; not written without a reduction
    Reduction reduction;
    bool zero_infinity;
    bool backward;       // false: nothing below is wanted
    void* gradient;      // (T, N, C), of the losses' type, contiguous in C; null: not wanted
    int64_t stride_t, stride_n;
    CountRows bypass, self_loop, word, token;  // expected counts of arcs, times −d(returned) / d(loss_n), are added
};

void loss(const Batch& batch, const LossResult& result, const Budget& budget, int threads);

// The first and last position that a path may have after each frame. Neither ever falls. Null: all.
struct Guide {
    const int32_t *first, *last;  // (N, T)

    Guide row(int64_t n, int64_t frames) const {
        if (first == nullptr) return *this;
        return {first + n * frames, last + n * frames};
    }
};

struct PathResult {
    double* score;       // (N)
    int32_t* position;   // (N, T): the position k at each frame
    int8_t* state;       // (N, T): 0 blank, 1 token, 2 ★; −1 past the end or where there is no path
    int8_t* arc;         // (N, T): how ★ was entered: 0 not entered here, 1 bypass, 2 self-loop, 3 word bypass
    Guide guide;
};

void best_path(const Batch& batch, const PathResult& result, const Budget& budget, int threads);

// The best paths of transcripts that are graphs (Batch::graphs), chains among them.
struct GraphPathResult {
    double* score;       // (N)
    int32_t* place;      // (N, T): in a token its arc, else the state of the graph
    int8_t* state;       // (N, T): as in PathResult
    int8_t* arc;         // (N, T): as in PathResult
    int32_t* via;        // (N, T): where ★ is entered by a bypass, the token arc beside it; by a word bypass, the word arc
};

void graph_best_path(const Batch& batch, const GraphPathResult& result, const Budget& budget, int threads);

const char* instruction_set();

}  // namespace wildctc
