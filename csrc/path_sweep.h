// The states of a best path, advanced through tiles of frames, and kept for later. Included by viterbi.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "path_plan.h"
#include "rows.h"

namespace wildctc {

// Paths by position in memory of their own.
struct Paths {
    std::vector<double> score;
    std::vector<int64_t> arcs;

    explicit Paths(int64_t count) : score(static_cast<size_t>(count), kNone), arcs(static_cast<size_t>(count)) {}
    PathArray view() { return {score.data(), arcs.data()}; }
};

struct Column {
    Paths blank, token, star;

    explicit Column(int64_t count) : blank(count), token(count), star(count) {}
    PathColumn view() { return {{blank.view(), token.view(), star.view()}}; }
};

class Sweep {
  public:
    Sweep(const Frames& logits, const PathGraph& g)
        : logits_(logits), g_(g), column_(g.positions), odd_(kBlock), even_(kBlock), either_(kBlock), through_(kBlock),
          either_code_(kBlock), through_code_(kBlock), scores_(static_cast<size_t>(logits.length)),
          rows_(static_cast<size_t>(kTile * (logits.outputs + 1))), frames_(kTile), edges_(kTile) {
        column_.blank.score[0] = 0;
    }

    // The states by position: in the windows that were advanced, after the last frame.
    PathColumn column() { return column_.view(); }

    // Frames [first, first + count), at the positions of the window; into `codes` (count, states, positions) how each state
    // was reached, unless it is null. False if a frame has no softmax.
    bool advance(int64_t first, int64_t count, Window window, int8_t* codes) {
        for (int64_t i = 0; i < count; ++i) {
            int8_t* const own = codes != nullptr ? codes + i * g_.states() * window.size() : nullptr;
            if (!prepare(first + i, i, own, window.size())) return false;
        }
        for (int64_t begin = window.begin; begin < window.end; begin += kBlock) {
            const int64_t end = std::min(begin + kBlock, window.end);
            advance_block(begin, end, count);
            for (PathFrame& f : frames_)
                if (codes != nullptr) f.codes += end - begin;
        }
        return true;
    }

  private:
    static constexpr int64_t kBlock = 512;  // positions: with all that belongs to them they fit into the second cache

    struct FrameScore {
        double max, total, blank, star;
        bool known = false;
    };

    bool prepare(int64_t t, int64_t i, int8_t* codes, int64_t width) {
        const int64_t outputs = logits_.outputs;
        double* row = &rows_[static_cast<size_t>(i * (outputs + 1))];
        FrameScore& score = scores_[static_cast<size_t>(t)];
        const double* x = load_row<double>(logits_, t, row);
        if (!score.known && !score_frame(x, score)) return false;
        for (int64_t v = 0; v < outputs; ++v) row[v] = x[v] - score.max - score.total;
        row[outputs] = kNone;
        frames_[static_cast<size_t>(i)] = {row, score.blank, score.star, codes, width};
        edges_[static_cast<size_t>(i)] = PathEdge{};
        return true;
    }

    bool score_frame(const double* x, FrameScore& f) const {
        const int64_t outputs = logits_.outputs;
        const double blank = x[logits_.blank];
        double others = kNone, sum = 0;  // the largest of the other logits, and the sum of their e^(logit − largest)
        for (int64_t v = 0; v < outputs; ++v) {
            if (!(x[v] < std::numeric_limits<double>::infinity())) return false;
            if (v != logits_.blank) others = std::max(others, x[v]);
        }
        f.max = std::max(others, blank);
        if (f.max == kNone) return false;
        for (int64_t v = 0; v < outputs && others > kNone; ++v)
            if (v != logits_.blank) sum += std::exp(x[v] - others);
        // relative to the largest of all, so that a common offset does not cost precision
        f.total = std::log(std::exp(blank - f.max) + sum * std::exp(others - f.max));
        f.blank = blank - f.max - f.total;
        f.star = others > kNone ? others - f.max + std::log(sum / static_cast<double>(outputs - 1)) - f.total : kNone;
        return f.known = true;
    }

    void advance_block(int64_t begin, int64_t end, int64_t frames) {
        words_.clear();
        repeats_.clear();
        const WordArc* const last_word = g_.graph().words + g_.graph().num_words;
        const WordArc* arc = g_.first_word_to(begin);
        for (; arc != last_word && arc->end < end; ++arc)
            words_.push_back({static_cast<int32_t>(arc->start - begin), static_cast<int32_t>(arc->end - begin), arc->word});
        for (const int64_t* k = g_.first_repeat(begin); k != g_.first_repeat(end); ++k)
            repeats_.push_back(static_cast<int32_t>(*k - begin));
        const bool open = arc != last_word && arc->start < end;
        const size_t at = static_cast<size_t>(begin);
        kernels().advance_paths({end - begin, frames, frames_.data(), &g_.label[at], &g_.self_loop[at], &g_.bypass[at], &g_.word[at],
                                 repeats_.data(), static_cast<int64_t>(repeats_.size()), words_.data(),
                                 static_cast<int64_t>(words_.size()), open ? arc->start - begin : end - begin, g_.wildcards,
                                 g_.graph().num_words > 0, column().at(begin), {even_.view(), odd_.view()}, either_.view(),
                                 through_.view(), either_code_.data(), through_code_.data(), edges_.data()});
    }

    const Frames logits_;
    const PathGraph& g_;
    Column column_, odd_, even_;
    Paths either_, through_;
    std::vector<int64_t> either_code_, through_code_;
    std::vector<FrameScore> scores_;  // of all frames: on the way back they are known
    std::vector<double> rows_;
    std::vector<PathFrame> frames_;
    std::vector<PathEdge> edges_;
    std::vector<WordArc> words_;
    std::vector<int32_t> repeats_;
};

// The states before some stretches of frames.
class Checkpoints {
  public:
    Checkpoints(int64_t states, std::vector<Window> windows) : states_(states), windows_(std::move(windows)) {
        int64_t count = 0;
        for (const Window& w : windows_) {
            first_.push_back(count);
            count += states * w.size();
        }
        score_.reset(new double[static_cast<size_t>(count)]);
        arcs_.reset(new int64_t[static_cast<size_t>(count)]);
    }

    void save(size_t i, const PathColumn& from) {
        const Window w = windows_[i];
        for (int64_t state = 0; state < states_; ++state) {
            std::copy_n(from.of[state].score + w.begin, w.size(), score_.get() + at(i, state));
            std::copy_n(from.of[state].arcs + w.begin, w.size(), arcs_.get() + at(i, state));
        }
    }

    // The saved states at some positions; −inf where none was saved.
    void restore(size_t i, const PathColumn& to, Window positions) const {
        const Window w{std::max(windows_[i].begin, positions.begin), std::min(windows_[i].end, positions.end)};
        for (int64_t state = 0; state < states_; ++state) {
            std::fill_n(to.of[state].score + positions.begin, positions.size(), kNone);
            const int64_t first = at(i, state) + (w.size() > 0 ? w.begin - windows_[i].begin : 0);
            std::copy_n(score_.get() + first, w.size(), to.of[state].score + w.begin);
            std::copy_n(arcs_.get() + first, w.size(), to.of[state].arcs + w.begin);
        }
    }

  private:
    int64_t at(size_t i, int64_t state) const { return first_[i] + state * windows_[i].size(); }

    const int64_t states_;
    const std::vector<Window> windows_;
    std::vector<int64_t> first_;  // of each window, in the arrays
    std::unique_ptr<double[]> score_;
    std::unique_ptr<int64_t[]> arcs_;
};

}  // namespace wildctc
