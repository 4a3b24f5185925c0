// What the best path's driver (viterbi.cpp) and its kernel (path_kernel.cpp, compiled once per instruction set) share.
#pragma once

#include <cstdint>
#include <limits>

#include "lattice.h"

namespace wildctc {

constexpr double kNone = -std::numeric_limits<double>::infinity();

enum State : int8_t { kBlank = 0, kToken = 1, kStar = 2 };
enum Arc : int8_t { kNoArc = 0, kBypass = 1, kSelfLoop = 2, kWordBypass = 3 };

// How a state at position k was reached: from which state, by which arc, and whether from an earlier position (moved).
struct Step {
    int8_t state;
    int8_t arc;
    bool moved;
};

constexpr int8_t pack(int state, int arc, bool moved) { return static_cast<int8_t>(state | arc << 2 | (moved ? 16 : 0)); }
inline Step unpack(int8_t code) { return {static_cast<int8_t>(code & 3), static_cast<int8_t>(code >> 2 & 3), (code & 16) != 0}; }

// The best path so far into a state. `arcs` decides ties: kTokenArc for each token arc, minus 1 for each wildcard.
struct Path {
    double score = kNone;
    int64_t arcs = 0;
};

constexpr int64_t kTokenArc = int64_t{1} << 32;
constexpr double kRounding = 0x1p-44;  // paths whose scores differ by less tie: they may have added the same in another order

// Paths by position.
struct PathArray {
    double* score;
    int64_t* arcs;

    Path operator[](int64_t k) const { return {score[k], arcs[k]}; }
    void set(int64_t k, const Path& path) const {
        score[k] = path.score;
        arcs[k] = path.arcs;
    }
    PathArray at(int64_t k) const { return {score + k, arcs + k}; }
};

struct PathColumn {
    PathArray of[3];  // by state

    PathColumn at(int64_t k) const { return {{of[0].at(k), of[1].at(k), of[2].at(k)}}; }
};

// Positions to the right of a block read this of the block, for each frame: the states of its last position, the better of
// blank and token there, and the same where the word starts that reaches over the end of the block.
struct PathEdge {
    Path blank, star, either, word;
    int8_t either_code = 0, word_code = 0;
};

// A frame's scores.
struct PathFrame {
    const double* row;  // (C + 1) of labels; −inf for the last, which stands for "no token"
    double blank, star;
    int8_t* codes;      // (states, positions) how each state was reached; null: not wanted
    int64_t width;      // of a row of codes
};

// Some positions, over some frames. Arrays start at the first of the positions.
struct PathBlock {
    int64_t size, frames;      // positions, a multiple of kLanes
    const PathFrame* frame;
    const int32_t* label;
    const double *self_loop, *bypass, *word;  // weights of arcs into each position, −inf where there is none
    const int32_t* repeats;    // positions whose token is the one before
    int64_t num_repeats;
    const WordArc* words;      // that end in the block; a start before the block is negative
    int64_t num_words;
    int64_t open;              // start of the word that reaches over the end of the block; `size` if there is none
    bool wildcards, word_arcs; // whether the graph has any
    PathColumn now;            // before the first frame, and then after the last one
    PathColumn scratch[2];
    PathArray either, through; // by position: the better of blank and token; the same, at the start of the word that ends there
    int64_t *either_code, *through_code;
    PathEdge* edge;            // (frames) of the positions to the left; then of these
};

}  // namespace wildctc
