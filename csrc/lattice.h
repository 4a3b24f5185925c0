// The types that the parts of the engine share. No standard containers here: kernel.cpp, which is compiled once
// per instruction set, must not instantiate inline code that the linker could share with the portable build.
#pragma once

#include <cstdint>

#include "scaled.h"

namespace wildctc {

enum class DType : int { float32 = 0, float64 = 1, float16 = 2, bfloat16 = 3 };

constexpr int kLanes = 16;  // the longest vector: arrays over positions are padded to it, and loops need no remainder

static inline int64_t padded(int64_t positions) { return (positions + kLanes - 1) / kLanes * kLanes; }

// One utterance's frames inside a strided (T, N, C) tensor, to read or to write.
struct Frames {
    void* data;
    int64_t stride_t, stride_c;  // in elements
    DType dtype;
    int64_t length;   // this utterance's frames
    int64_t allotted; // the tensor's frames; those past `length` receive gradient 0
    int64_t outputs;
    int64_t blank;
};

struct WordArc {
    int32_t start, end;  // positions that the arc joins
    int64_t word;
};

// e^weight for each position, as a scaled number and as a plain one.
template <class R>
struct Weighting {
    const R* m;
    const Int<R>* e;
    const double* plain;
};

// A state from which arcs lead elsewhere than to the next position, or not only there.
struct Junction {
    int32_t sources, targets;  // where its positions begin in Jumps::sources and Jumps::targets
    bool small;                // one or two sources, and one target at most, which repeats none of their labels
    int32_t a, b, target;      // of a small one: its sources, twice the same if it is one; its target, 0 for none
};

struct Repeat {
    int32_t position, junction;  // a target of the junction has the label of this position, which is one of its sources
};

// What a transcript graph has that a chain has not (jumps.h). Its position k is token arc k − 1; position 0 is the start.
template <class R>
struct Jumps {
    Weighting<R> enter;       // [k]: e^weight of token arc k − 1 where it leads from position k − 1; 0 where a jump leads to k
    Weighting<R> token;       // [k]: e^weight of the token arc where a jump leads to k
    Weighting<R> bypass;      // [k]: of the bypass beside it
    Weighting<R> word;        // [i]: of word_jumps[i]
    Weighting<R> final;       // [i]: of ends[i]
    Weighting<R> second;      // [i]: 1 if small junction i has two sources, else 0
    const Junction* junctions;    // count + 1 of them, in the order of their last sources
    int64_t count;
    const int32_t *sources, *targets;  // positions; all targets of a junction come after all its sources
    const uint8_t* same_label;    // of each target: whether a source of its junction has its label
    const WordArc* word_jumps;    // sorted by their ends; `start` is the number of a junction
    const uint8_t* adds;          // [i]: whether a jump or an earlier word jump leads to the same position as word_jumps[i]
    const int64_t* complete;      // [k]: how many junctions have all their sources before position k
    const int64_t* begun;         // [k]: one more than the number of the last junction that has a source before k
    const int64_t* words_before;  // [k]: how many word jumps end before k
    int64_t num_word_jumps;
    const Repeat* repeats;        // in the order of their positions
    int64_t num_repeats;
    const int32_t* ends;          // positions where a writing ends
    int64_t num_ends;
    const int32_t* state;         // [k]
};

// The transcript graph of one utterance. Arrays over positions 0…U are padded to whole vectors; weights are 0 there.
template <class R>
struct Graph {
    int64_t tokens;         // U
    bool wildcards;         // false: plain CTC
    bool tame;              // no weight is above 0 or too low for a plain number
    int64_t least_weight;   // the exponent of the least e^weight that is not 0; at most 0
    const int32_t* label;   // [k]: y_k, the token that enters position k; where there is none, any that is not blank
    const Int<R>* no_token; // [k]: 0, or the exponent of 0 where no token enters position k
    const int64_t* repeats; // positions k with y_k = y_{k-1}
    int64_t num_repeats;
    Weighting<R> self_loop; // [k]: e^weight of the loop at position k
    Weighting<R> bypass;    // [k]: of the bypass into position k
    Weighting<R> word_in;   // [k]: of the word that ends at position k
    Weighting<R> word_out;  // [k]: of the word that starts at position k
    const WordArc* words;   // from left to right
    int64_t num_words;
    const int64_t* next_word;  // [k]: the first of them that starts at position k or later
    const int64_t* farthest_back;   // [k]: the first position from which an arc leads to k or beyond
    const int64_t* farthest_ahead;  // [k]: the last position to which an arc leads from k or before
    // for narrow.h: terms that a frame can lose, ★ arcs out of a state, and the logarithm of how many paths say the same
    int64_t terms;
    double stars, same;
    int64_t least_enter;        // as least_weight, of token arcs
    const Jumps<R>* jumps;      // null: a chain
};

// The softmax of one frame, except for its tokens.
template <class R>
struct FrameScores {
    R max, sum;        // of the non-blank logits: the largest (blank's, if none is above −inf), and the sum of e^(logit − max)
    bool flat;         // e^(logit − max) is a normal number for all of them
    int32_t least;     // ... and if so, it is at least 2^least
    int32_t shift;     // of the plain lattice: its emissions are 2^shift times as large
    R non_blank;       // 1 − P(blank), computed without subtraction
    Scaled<R> token;   // P(v) = e^(logit − max) · token, v not blank
    Scaled<R> blank, star;
};

// Where the expected counts of a family of arcs, times scale, are added: minus the gradient to their weights.
struct Counts {
    double* each;  // [i · step]; null: not wanted
    int64_t step;  // 0: all arcs into one

    bool wanted() const { return each != nullptr; }
    double& operator[](int64_t i) const { return each[i * step]; }
};

struct ArcCounts {
    Counts bypass;     // [u], token u = 0…U-1
    Counts self_loop;  // [k], position k = 0…U
    Counts word;       // [w]
    Counts token;      // [a]; of graphs that are no chains only
};

template <class R>
struct Kernel {
    // bytes of scratch memory that one thread takes for an utterance: at most `limit`, if that is possible
    int64_t (*workspace)(const Frames& logits, const Graph<R>&, bool backward, int64_t limit);
    // the log-likelihood alone: −inf if there is no path, NaN if a frame has no softmax
    double (*forward)(const Frames& logits, const Graph<R>&, char* workspace);
    // with the gradient, times scale, and the arcs' counts; gradient.data may be null
    double (*forward_backward)(const Frames& logits, const Graph<R>&, const Frames& gradient, double scale,
                               const ArcCounts& counts, char* workspace, int64_t limit);
};

struct PathBlock;

struct Kernels {
    Kernel<float> single;
    Kernel<double> real;
    void (*advance_paths)(const PathBlock&);
    const char* isa;
};

const Kernels& kernels();  // of this processor

namespace portable { Kernels kernels(); void advance_paths(const PathBlock&); }
#if defined(WILDCTC_X86)
namespace avx2 { Kernels kernels(); void advance_paths(const PathBlock&); }
namespace avx512 { Kernels kernels(); void advance_paths(const PathBlock&); }
#endif

}  // namespace wildctc
