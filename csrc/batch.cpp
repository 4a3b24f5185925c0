#include "batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "transcript.h"

namespace wildctc {

bool Weights::present() const { return each != nullptr || value > -std::numeric_limits<double>::infinity(); }

namespace {

// The largest log-weight with which the exponents of the wide format can hold every path of this many frames.
//
// A 0 has the exponent Format::zero, and every exponent below half of that counts as 0 (is_zero). The other half is the
// range of paths. A path gains its weights, at most one wildcard in every other frame; and where paths join, fewer than 3
// bits a frame, because no state has more than 6 predecessors. The bits that 64 frames could gain stay free: they keep a 0
// below the least likelihood, so that it does not appear in posteriors. e^weight itself can have 51 bits.
template <class R>
double largest_weight_in(int64_t frames) {
    constexpr double range = -static_cast<double>(Format<R>::zero) / 2, per_bit = 0.69314718055994530942;
    const double left = range - 3.0 * static_cast<double>(frames + 64);
    return per_bit * std::min(left / static_cast<double>(std::max<int64_t>(1, (frames + 1) / 2)), 0x1p51);
}

double largest_weight(const Batch& b, int64_t frames) {
    return std::max(0.0, b.dtype == DType::float64 ? largest_weight_in<double>(frames) : largest_weight_in<float>(frames));
}

[[noreturn]] void fail(int64_t n, const std::string& what) {
    throw std::invalid_argument("utterance " + std::to_string(n) + ": " + what);
}

std::string str(int64_t x) { return std::to_string(x); }

void check_length(int64_t n, const char* name, int64_t value, int64_t limit, const char* limit_name) {
    if (value < 0 || value > limit)
        fail(n, std::string(name) + " is " + str(value) + ", must be between 0 and " + limit_name + " = " + str(limit));
}

void check_labels(const Batch& b, int64_t n, const int64_t* labels, int64_t count) {
    for (int64_t u = 0; u < count; ++u) {
        if (labels[u] < 0 || labels[u] >= b.outputs)
            fail(n, "target " + str(u) + " is " + str(labels[u]) + ", must be between 0 and C - 1 = " + str(b.outputs - 1));
        if (labels[u] == b.blank) fail(n, "target " + str(u) + " is " + str(labels[u]) + ", which is the blank");
    }
}

void check_words(const Batch& b, int64_t n, const int64_t* words, int64_t count) {
    int64_t largest = -1;
    for (int64_t u = 0; u < count; ++u) {
        const int64_t word = words[u];
        if (word < -1) fail(n, "word of token " + str(u) + " is " + str(word) + ", must be -1 (in no word) or more");
        if (b.word_bypass.per_arc() && word >= b.word_bypass.width)
            fail(n, "word of token " + str(u) + " is " + str(word) + ", but word_bypass has weights for words 0 to " +
                        str(b.word_bypass.width - 1) + " only");
        if (word < 0 || (u > 0 && word == words[u - 1])) continue;
        if (word <= largest)
            fail(n, "words are not contiguous: word " + str(word) + " at token " + str(u) + " comes after word " +
                        str(largest) + "; number words 0, 1, 2, … from left to right");
        largest = word;
    }
}

void check_weights(const Batch& b, int64_t n, const char* name, const Weights& w, int64_t count) {
    const double largest = largest_weight(b, b.input_lengths[n]);
    if (w.per_arc() && w.width < count)
        fail(n, std::string(name) + " has " + str(w.width) + " weights, needs " + str(count));
    for (int64_t i = 0; i < count; ++i) {
        const double x = w.of(n, i);
        if (std::isnan(x) || x > largest)
            fail(n, std::string(name) + " weight " + str(i) + " is " + (std::isnan(x) ? "NaN" : std::to_string(x)) +
                        ", must be a number of at most " + str(static_cast<int64_t>(largest)) + " (for " +
                        str(b.input_lengths[n]) + " frames in " + (b.dtype == DType::float64 ? "float64" : "float32") +
                        ") or -inf");
        if (!w.per_arc()) break;
    }
}

}  // namespace

Frames logits_of(const Batch& b, int64_t n) {
    const int64_t element_size = b.dtype == DType::float64 ? 8 : b.dtype == DType::float32 ? 4 : 2;
    return {static_cast<char*>(b.logits) + n * b.stride_n * element_size, b.stride_t, b.stride_c, b.dtype,
            b.input_lengths[n], b.frames, b.outputs, b.blank};
}

void check(const Batch& b) {
    const bool concatenated = b.targets.width < 0;
    int64_t offset = 0;
    for (int64_t n = 0; n < b.size; ++n) {
        const int64_t count = b.target_lengths[n];
        check_length(n, "input_length", b.input_lengths[n], b.frames, "T");
        check_length(n, "target_length", count, concatenated ? b.targets.total - offset : b.targets.width,
                     concatenated ? "the number of remaining targets" : "S");
        check_labels(b, n, b.targets.row(n, offset), count);
        if (!b.chain(n)) {
            check_graph(b, n, offset, largest_weight(b, 2 * b.input_lengths[n]));
            offset += count;
            continue;
        }
        int64_t last_word = -1;
        if (b.words.data != nullptr) {
            const int64_t* words = b.words.row(n, offset);
            check_words(b, n, words, count);
            for (int64_t u = 0; u < count; ++u) last_word = larger(last_word, words[u]);
        }
        check_weights(b, n, "bypass", b.bypass, count);
        check_weights(b, n, "self_loop", b.self_loop, count + 1);
        check_weights(b, n, "word_bypass", b.word_bypass, last_word + 1);
        offset += count;
    }
    if (concatenated && offset != b.targets.total)
        throw std::invalid_argument("target_lengths add up to " + str(offset) + ", but there are " +
                                    str(b.targets.total) + " concatenated targets");
}

}  // namespace wildctc
