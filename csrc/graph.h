// The transcript graph of one utterance of a batch, in the form that the kernels read.
#pragma once

#include <algorithm>
#include <numeric>
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

template <class R>
class GraphOf {
  public:
    GraphOf(const Batch& b, int64_t n, int64_t offset) {
        const int64_t U = b.target_lengths[n], K = padded(U + 1);
        const int64_t* labels = b.targets.row(n, offset);
        const int64_t* words = b.words.data != nullptr ? b.words.row(n, offset) : nullptr;
        label_.assign(K, 0);
        for (int64_t k = 1; k <= U; ++k) label_[k] = static_cast<int32_t>(labels[k - 1]);
        for (int64_t k = 2; k <= U; ++k)
            if (label_[k] == label_[k - 1]) repeats_.push_back(k);
        group_by_label(U);
        const bool wild = b.wildcards();
        if (wild) add_wildcards(b, n, words, U, K);
        view_ = {U, K, wild, label_.data(), self_m_.data(), self_e_.data(), bypass_m_.data(), bypass_e_.data(),
                 words_.data(), static_cast<int64_t>(words_.size()), repeats_.data(),
                 static_cast<int64_t>(repeats_.size()), grouped_.data(), group_label_.data(), group_end_.data(),
                 static_cast<int64_t>(group_label_.size())};
    }

    const Graph<R>& view() const { return view_; }

  private:
    static Scaled<R> weight(double log_weight) {
        const Scaled<double> w = normalised(scaled_exp(log_weight));
        const int64_t e = larger<int64_t>(w.e, Format<R>::zero);
        return {static_cast<R>(w.m), static_cast<Int<R>>(e)};
    }

    void add_wildcards(const Batch& b, int64_t n, const int64_t* words, int64_t U, int64_t K) {
        self_m_.assign(K + 1, R(1));  // one more: the backward pass reads the arc that leaves the last position
        bypass_m_.assign(K + 1, R(1));
        self_e_.assign(K + 1, Format<R>::zero);
        bypass_e_.assign(K + 1, Format<R>::zero);
        for (int64_t k = 0; k <= U; ++k) {
            if (b.self_loop.present() && has_loop(b, words, k, U)) set(self_m_, self_e_, k, b.self_loop.of(n, k));
            if (b.bypass.present() && k > 0) set(bypass_m_, bypass_e_, k, b.bypass.of(n, k - 1));
        }
        if (!b.word_bypass.present()) return;
        for (const WordSpan& span : word_spans(words, U))
            words_.push_back({span.start, span.end, span.word, weight(b.word_bypass.of(n, span.word))});
    }

    static void set(std::vector<R>& m, std::vector<Int<R>>& e, int64_t k, double log_weight) {
        const Scaled<R> w = weight(log_weight);
        m[k] = w.m;
        e[k] = w.e;
    }

    void group_by_label(int64_t U) {
        grouped_.resize(U);
        std::iota(grouped_.begin(), grouped_.end(), 1);
        std::stable_sort(grouped_.begin(), grouped_.end(), [&](int32_t i, int32_t j) { return label_[i] < label_[j]; });
        for (int64_t i = 0; i < U; ++i) {
            if (i > 0 && label_[grouped_[i]] == group_label_.back()) {
                group_end_.back() = i + 1;
            } else {
                group_label_.push_back(label_[grouped_[i]]);
                group_end_.push_back(i + 1);
            }
        }
    }

    std::vector<int32_t> label_, grouped_, group_label_;
    std::vector<int64_t> repeats_, group_end_;
    std::vector<R> self_m_, bypass_m_;
    std::vector<Int<R>> self_e_, bypass_e_;
    std::vector<WordArc<R>> words_;
    Graph<R> view_;
};

}  // namespace wildctc
