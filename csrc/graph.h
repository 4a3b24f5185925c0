// The transcript graph of one utterance of a batch, in the form that the kernels read.
#pragma once

#include <algorithm>
#include <new>
#include <vector>

#include "batch.h"

namespace wildctc {

struct WordSpan {
    int64_t start, end, word;  // tokens [start, end), which are also the positions that the word's arc joins
};

static inline std::vector<WordSpan> word_spans(const int64_t* words, int64_t count) {
    std::vector<WordSpan> spans;
    for (int64_t u = 0; u < count; ++u) {
        if (words[u] < 0) continue;
        if (!spans.empty() && spans.back().word == words[u]) {
            spans.back().end = u + 1;
        } else {
            spans.push_back({u, u + 1, words[u]});
        }
    }
    return spans;
}

// Position k carries a self-loop: everywhere, or (loops at words) at 0, U and where a word starts or ends.
static inline bool has_loop(const Batch& b, const int64_t* words, int64_t k, int64_t tokens) {
    return !b.loops_at_words || k == 0 || k == tokens || words[k - 1] != words[k];
}

// Aligned to the longest vectors, so that none is loaded from two lines of the cache.
template <class T>
struct Aligned {
    using value_type = T;
    static constexpr std::align_val_t alignment{64};

    Aligned() = default;
    template <class U>
    Aligned(const Aligned<U>&) {}
    T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), alignment)); }
    void deallocate(T* block, size_t) { ::operator delete(block, alignment); }
    template <class U>
    bool operator==(const Aligned<U>&) const { return true; }
    template <class U>
    bool operator!=(const Aligned<U>&) const { return false; }
};

template <class R>
class GraphOf {
  public:
    GraphOf(const Batch& b, int64_t n, int64_t offset) {
        const int64_t U = b.target_lengths[n], K = padded(U + 1);
        const int64_t* labels = b.targets.row(n, offset);
        // A position that no token enters has a label too, because kernels read one for each position. It is not the
        // blank: its logit can be so far above the largest of the others that e^(logit − largest) is out of range.
        label_.assign(static_cast<size_t>(K), b.blank == 0 && b.outputs > 1 ? 1 : 0);
        no_token_.assign(static_cast<size_t>(K), Format<R>::zero);
        std::fill_n(no_token_.begin() + 1, U, 0);
        for (int64_t k = 1; k <= U; ++k) label_[static_cast<size_t>(k)] = static_cast<int32_t>(labels[k - 1]);
        for (int64_t k = 2; k <= U; ++k)
            if (labels[k - 1] == labels[k - 2]) repeats_.push_back(k);
        for (int64_t k = 0; k < K; ++k) {
            farthest_back_.push_back(larger<int64_t>(k - 1, 0));
            farthest_ahead_.push_back(k < U ? k + 1 : U);
        }
        const bool wild = b.wildcards();
        if (wild) add_wildcards(b, n, b.words.data != nullptr ? b.words.row(n, offset) : nullptr, U, K);
        look_at_weights();
        view_ = {U, wild, tame_, least_weight_, label_.data(), no_token_.data(), repeats_.data(), static_cast<int64_t>(repeats_.size()),
                 self_loop_.view(), bypass_.view(), word_in_.view(), word_out_.view(),
                 words_.data(), static_cast<int64_t>(words_.size()), next_word_.data(), farthest_back_.data(),
                 farthest_ahead_.data(), 10 * (U + 1), 4, 0, 0, nullptr};
    }

    const Graph<R>& view() const { return view_; }

    // a bound of what the graph itself takes
    int64_t bytes() const { return static_cast<int64_t>(label_.size()) * (32 + 4 * (sizeof(R) + sizeof(Int<R>) + sizeof(double)) + 32); }

    static constexpr int64_t kTamest = 500;  // bits: well inside the range of a double, and beyond the weights of all schedules

    struct Weights {
        std::vector<R, Aligned<R>> m;
        std::vector<Int<R>, Aligned<Int<R>>> e;
        std::vector<double, Aligned<double>> plain;

        void clear(int64_t count) {
            plain.assign(static_cast<size_t>(count), 0.0);
            m.assign(static_cast<size_t>(count), R(1));
            e.assign(static_cast<size_t>(count), Format<R>::zero);
        }
        void set(int64_t k, double log_weight) {
            const Scaled<double> w = normalised(scaled_exp(log_weight));
            m[static_cast<size_t>(k)] = static_cast<R>(w.m);
            e[static_cast<size_t>(k)] = static_cast<Int<R>>(larger<int64_t>(w.e, Format<R>::zero));
            plain[static_cast<size_t>(k)] = w.e > -kTamest ? ::wildctc::plain(w) : 0.0;
        }
        Weighting<R> view() const { return {m.data(), e.data(), plain.data()}; }

        // Lowers `least` to the least exponent of a weight that is not 0, and `tame` if a weight is not.
        void look(bool& tame, int64_t& least) const {
            for (size_t k = 0; k < m.size(); ++k) {
                if (e[k] == Format<R>::zero) continue;
                least = std::min<int64_t>(least, e[k]);
                tame = tame && e[k] > -kTamest && (e[k] < 0 || (e[k] == 0 && m[k] == R(1)));
            }
        }
    };

  private:
    void add_wildcards(const Batch& b, int64_t n, const int64_t* words, int64_t U, int64_t K) {
        // one vector longer than the positions: the backward pass also reads the arcs that would leave the last position
        for (Weights* w : {&self_loop_, &bypass_, &word_in_, &word_out_}) w->clear(K + kLanes);
        for (int64_t k = 0; k <= U; ++k) {
            if (b.self_loop.present() && has_loop(b, words, k, U)) self_loop_.set(k, b.self_loop.of(n, k));
            if (b.bypass.present() && k > 0) bypass_.set(k, b.bypass.of(n, k - 1));
        }
        if (!b.word_bypass.present()) return;
        for (const WordSpan& span : word_spans(words, U)) {
            next_word_.resize(static_cast<size_t>(span.start + 1), static_cast<int64_t>(words_.size()));
            words_.push_back({static_cast<int32_t>(span.start), static_cast<int32_t>(span.end), span.word});
            word_in_.set(span.end, b.word_bypass.of(n, span.word));
            word_out_.set(span.start, b.word_bypass.of(n, span.word));
            for (int64_t k = span.start; k < span.end; ++k) {
                farthest_back_[static_cast<size_t>(k + 1)] = span.start;
                farthest_ahead_[static_cast<size_t>(k)] = span.end;
            }
        }
        next_word_.resize(static_cast<size_t>(K + 1), static_cast<int64_t>(words_.size()));
    }

    void look_at_weights() {
        for (const Weights* w : {&self_loop_, &bypass_, &word_in_}) w->look(tame_, least_weight_);
    }

    std::vector<int32_t> label_;
    std::vector<Int<R>> no_token_;
    std::vector<int64_t> repeats_, next_word_, farthest_back_, farthest_ahead_;
    Weights self_loop_, bypass_, word_in_, word_out_;
    std::vector<WordArc> words_;
    bool tame_ = true;
    int64_t least_weight_ = 0;
    Graph<R> view_;
};

}  // namespace wildctc
