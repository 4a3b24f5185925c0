// A batch as Python passes it, and the checks that are made before its pointers are used.
#pragma once

#include <cstdint>
#include <string>

#include "lattice.h"

namespace wildctc {

// The weights of an arc family: one for all, one per arc, (N, width) and contiguous, or one per utterance, (N).
struct Weights {
    double value;         // −inf: the family is absent
    const double* each;   // null: `value` is the weight of all arcs
    int64_t width;        // −1: one per utterance

    bool present() const;
    bool per_arc() const { return each != nullptr && width >= 0; }
    double of(int64_t n, int64_t i) const { return per_arc() ? each[n * width + i] : each != nullptr ? each[n] : value; }
};

// Rows of integers, (N, width) padded or concatenated.
struct Rows {
    const int64_t* data;
    int64_t width;  // −1: concatenated
    int64_t total; // of elements

    const int64_t* row(int64_t n, int64_t offset) const { return data + (width >= 0 ? n * width : offset); }
};

// What transcripts that are graphs have besides the labels of their token arcs, which are in Batch::targets. Rows of all
// utterances follow one another.
struct Transcripts {
    const int64_t* arcs;            // (token arcs, 2): source and target
    const double* arc_weights;      // (token arcs, 2): the arc's, and the part of it that its bypass pays too
    const int64_t* word_arcs;       // (word arcs, 3): source, target, and the number of the weight
    const double* word_weights;     // (word arcs): a log-weight that is added
    const double* final;            // (states): −inf where no writing ends
    const int64_t *states, *words;  // (N + 1): where the states and the word arcs of each utterance begin
    const int64_t* num_words;       // (N): numbers of words
    const int64_t* lengths;         // (N): tokens of the first writing, by which `mean` divides
    const uint8_t* chain;           // (N): computed as a chain, by targets and words alone
    Weights added;                  // (N, A): log-weights that are added to those of the token arcs
};

struct Batch {
    void* logits;
    DType dtype;
    int64_t frames, size, outputs;           // T, N, C
    int64_t stride_t, stride_n, stride_c;    // in elements
    Rows targets, words;                     // words.data may be null
    const int64_t *input_lengths, *target_lengths;
    int64_t blank;
    Weights bypass, self_loop, word_bypass;
    bool loops_at_words;
    const Transcripts* graphs = nullptr;  // null: all transcripts are chains

    bool chain(int64_t n) const { return graphs == nullptr || graphs->chain[n] != 0; }
    bool wildcards() const { return bypass.present() || self_loop.present() || word_bypass.present(); }
    bool needs_words() const { return word_bypass.present() || (loops_at_words && self_loop.present()); }
};

// The logits of utterance n.
Frames logits_of(const Batch& batch, int64_t n);

// Throws std::invalid_argument, with the utterance's index, the value and the limit.
void check(const Batch& batch);

}  // namespace wildctc
