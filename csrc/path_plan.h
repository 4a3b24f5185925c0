// Which frames and positions of a best path are computed, and how many frames make a stretch. Included by viterbi.cpp.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "engine.h"
#include "graph.h"
#include "path.h"

namespace wildctc {

constexpr int64_t kTile = 32;  // frames that are computed at a time, for a block of positions

// Positions [begin, end) that are computed in a tile: multiples of kLanes.
struct Window {
    int64_t begin, end;

    int64_t size() const { return end > begin ? end - begin : 0; }
};

static inline int64_t floor_lanes(int64_t k) { return k / kLanes * kLanes; }

// The transcript graph, with weights in logarithms; −inf where there is no arc.
class PathGraph {
  public:
    PathGraph(const Batch& b, int64_t n, int64_t offset)
        : tokens(b.target_lengths[n]), positions(padded(tokens + 1)), wildcards(b.wildcards()),
          label(static_cast<size_t>(positions), static_cast<int32_t>(b.outputs)), self_loop(static_cast<size_t>(positions), kNone),
          bypass(self_loop), word(self_loop), graph_(b, n, offset) {
        const int64_t* words = b.words.data != nullptr ? b.words.row(n, offset) : nullptr;
        for (int64_t k = 0; k <= tokens; ++k) {
            const size_t at = static_cast<size_t>(k);
            if (k > 0) label[at] = graph().label[k];
            if (b.self_loop.present() && has_loop(b, words, k, tokens)) self_loop[at] = b.self_loop.of(n, k);
            if (b.bypass.present() && k > 0) bypass[at] = b.bypass.of(n, k - 1);
        }
        for (int64_t i = 0; i < graph().num_words; ++i)
            word[static_cast<size_t>(graph().words[i].end)] = b.word_bypass.of(n, graph().words[i].word);
    }

    const Graph<double>& graph() const { return graph_.view(); }
    int64_t states() const { return wildcards ? 3 : 2; }
    int64_t word_start(int64_t end) const { return first_word_to(end)->start; }

    // the first word that ends at position k or later, and the first repeat from position k on
    const WordArc* first_word_to(int64_t k) const {
        return std::lower_bound(graph().words, graph().words + graph().num_words, k,
                                [](const WordArc& arc, int64_t end) { return arc.end < end; });
    }
    const int64_t* first_repeat(int64_t k) const {
        return std::lower_bound(graph().repeats, graph().repeats + graph().num_repeats, k);
    }
    // the first position from which position k can be reached in some frames
    int64_t back(int64_t k, int64_t frames) const {
        for (int64_t i = 0; i < frames && k > 0; ++i) k = graph().farthest_back[k];
        return k;
    }

    const int64_t tokens, positions;
    const bool wildcards;
    std::vector<int32_t> label;  // the number of outputs where no token enters a position
    std::vector<double> self_loop, bypass, word;

  private:
    const GraphOf<double> graph_;
};

class PathPlan {
  public:
    PathPlan(const PathGraph& g, int64_t frames, const Guide& guide) : graph_(g), frames_(frames) { find_windows(guide); }

    // Chooses the stretches: one, if its backpointers are few; otherwise those that take the least memory. Returns the bytes.
    int64_t choose(int64_t limit) {
        const int64_t all = graph_.states() * kTile * tiles() * graph_.positions;
        stretch_ = std::max<int64_t>(1, tiles());
        if (fixed() + all <= std::min(limit, kSmall)) return fixed() + all;
        std::vector<int64_t> back(graph_.graph().farthest_back, graph_.graph().farthest_back + graph_.tokens + 1);
        int64_t least = std::numeric_limits<int64_t>::max();
        for (int64_t frames = 1; frames < 2 * kTile * tiles(); frames *= 2) {  // back: where this many frames lead back to
            int64_t span = 0;
            for (size_t k = 0; k < back.size(); ++k) span = std::max(span, static_cast<int64_t>(k) - back[k]);
            const int64_t stretch = frames / kTile, width = std::min(graph_.positions, padded(span + 1) + kLanes);
            const int64_t bytes = stretch > 0 ? saved_bytes(stretch) + graph_.states() * frames * width : least;
            if (bytes < least) {
                least = bytes;
                stretch_ = stretch;
            }
            for (size_t k = back.size(); k-- > 0;) back[k] = back[static_cast<size_t>(back[k])];
        }
        return fixed() + least;
    }

    int64_t tiles() const { return static_cast<int64_t>(windows_.size()); }
    int64_t stretch() const { return stretch_; }  // in tiles
    int64_t stretches() const { return std::max<int64_t>(1, (tiles() + stretch_ - 1) / stretch_); }
    int64_t frames_in(int64_t tile) const { return std::min(kTile, frames_ - tile * kTile); }
    Window window(int64_t tile) const { return windows_[static_cast<size_t>(tile)]; }

    // The positions whose states are kept before each stretch except the last.
    std::vector<Window> saved(int64_t stretch) const {
        std::vector<Window> result;
        for (int64_t i = 0; i + stretch < tiles(); i += stretch)
            result.push_back({window(i).begin, i > 0 ? window(i - 1).end : int64_t{kLanes}});
        return result;
    }

    // The positions in the tiles [first, last) from which position k after them can be reached.
    std::vector<Window> cone(int64_t first, int64_t last, int64_t k) const {
        std::vector<Window> result(static_cast<size_t>(last - first));
        const int64_t end = padded(k + 1);
        for (int64_t i = last - 1; i >= first; --i) {
            k = graph_.back(k, frames_in(i));
            result[static_cast<size_t>(i - first)] = {std::max(window(i).begin, floor_lanes(k)), std::min(window(i).end, end)};
        }
        return result;
    }

  private:
    static constexpr int64_t kSmall = int64_t{16} << 20;  // bytes of backpointers that are kept without a second pass

    // bytes that do not depend on the stretches
    int64_t fixed() const { return 250 * graph_.positions + 56 * frames_ + 64 * tiles(); }

    int64_t saved_bytes(int64_t stretch) const {
        int64_t count = 0;
        for (const Window& w : saved(stretch)) count += w.size();
        return count * graph_.states() * static_cast<int64_t>(sizeof(double) + sizeof(int64_t));
    }

    // Positions that can be reached from the start, from which the end can be reached, and which the guide allows.
    void find_windows(const Guide& guide) {
        windows_.resize(static_cast<size_t>((frames_ + kTile - 1) / kTile));
        int64_t first = graph_.tokens, last = 0;
        for (int64_t i = tiles() - 1; i >= 0; --i) {
            first = graph_.back(first, frames_in(i));
            windows_[static_cast<size_t>(i)].begin = floor_lanes(first);
        }
        Window before{0, 0};  // neither end moves back: a position that has left the window is not computed again
        for (int64_t i = 0; i < tiles(); ++i) {
            Window& w = windows_[static_cast<size_t>(i)];
            const int64_t start = i * kTile, end = start + frames_in(i);
            for (int64_t t = start; t < end && last < graph_.tokens; ++t) last = graph_.graph().farthest_ahead[last];
            w.end = padded(last + 1);
            if (guide.first != nullptr) {
                w.begin = std::max(w.begin, floor_lanes(*std::min_element(guide.first + start, guide.first + end)));
                w.end = std::min(w.end, padded(*std::max_element(guide.last + start, guide.last + end) + 1));
            }
            w = before = {std::max(w.begin, before.begin), std::max(w.end, before.end)};
        }
    }

    const PathGraph& graph_;
    const int64_t frames_;
    std::vector<Window> windows_;
    int64_t stretch_ = 1;
};

}  // namespace wildctc
