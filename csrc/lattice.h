// What the parts of the engine say to each other. No standard containers here: kernel.cpp, which is compiled once
// per instruction set, must not instantiate inline code that the linker could share with the portable build.
#pragma once

#include <cstdint>

#include "scaled.h"

namespace wildctc {

enum class DType : int { float32 = 0, float64 = 1, float16 = 2, bfloat16 = 3 };

constexpr int kLanes = 16;  // positions are padded to a multiple of this, so vector loops have no remainder

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
    int64_t start, end;  // positions that the arc joins
    int64_t word;
};

// One scaled number per position.
template <class R>
struct Weighting {
    const R* m;
    const Int<R>* e;
};

// The transcript graph of one utterance. Arrays over positions 0…U, padded with zeros (SPEC: states, not tokens).
template <class R>
struct Graph {
    int64_t tokens;         // U
    int64_t positions;      // padded(U + 1)
    bool wildcards;         // false: plain CTC
    const int32_t* label;   // [k]: y_k, the token that enters position k; label[0] is unused
    const int64_t* repeats; // positions k with y_k = y_{k-1}
    int64_t num_repeats;
    Weighting<R> self_loop; // [k]: e^weight of the loop at position k
    Weighting<R> bypass;    // [k]: of the bypass into position k
    Weighting<R> word_in;   // [k]: of the word that ends at position k
    Weighting<R> word_out;  // [k]: of the word that starts at position k
    const WordArc* words;
    int64_t num_words;
    const int64_t* farthest_back;  // [k]: the first position from which an arc leads to position k or beyond it
};

enum class Outcome : int64_t { feasible = 0, infeasible = 1, nan = 2 };

// What the forward pass leaves for the backward pass, at the head of an utterance's saved block.
struct Summary {
    double log_likelihood;
    double total_m;   // the likelihood itself, as a scaled number
    int64_t total_e;
    Outcome outcome;
};

// Where the alphas are kept: the state before frames 0, segment, 2·segment, …; the rest is computed again, a segment
// at a time, which is cheaper than writing all of them to memory and reading them back.
template <class R>
struct Saved {
    Summary* summary;
    R* row_max;       // [t]: largest non-blank logit
    R* row_sum;       // [t]: sum over non-blank of e^(logit - row_max)
    R* alpha_m;       // (checkpoints, states, positions)
    Int<R>* alpha_e;
};

// Expected counts of the arcs, times scale, are added here: minus the gradient to their weights. Any may be null.
struct ArcCounts {
    double* bypass;     // [u], token u = 0…U-1
    double* self_loop;  // [k], position k = 0…U
    double* word;       // [w]
};

template <class R>
struct Kernel {
    // bytes of scratch memory that one thread needs for an utterance
    int64_t (*workspace)(const Graph<R>&, int64_t outputs, int64_t segment);
    // saved.alpha_m may be null: only the likelihood is wanted
    void (*forward)(const Frames& logits, const Graph<R>&, int64_t segment, const Saved<R>&, char* workspace);
    // gradient.data may be null: only arc counts are wanted
    void (*backward)(const Frames& logits, const Graph<R>&, int64_t segment, const Saved<R>&, const Frames& gradient,
                     double scale, const ArcCounts& counts, char* workspace);
};

struct Kernels {
    Kernel<float> single;
    Kernel<double> real;
    const char* isa;
};

namespace portable { Kernels kernels(); }
#if defined(WILDCTC_X86)
namespace avx2 { Kernels kernels(); }
namespace avx512 { Kernels kernels(); }
#endif

}  // namespace wildctc
