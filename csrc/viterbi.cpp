// The best path. Its recursion is in path_kernel.cpp.
//
// Frames are taken kTile at a time, and positions in blocks that fit into the cache. No arc leads to an earlier position, so
// a block can be taken through all frames of a tile before the next block.
//
// A recording whose backpointers are few keeps them all. Of a longer one, the states before each stretch of frames are kept.
// On the way back, stretch by stretch, the states are computed again, with backpointers, for the positions from which the
// path can have come: over a stretch, these are few.
#include <cmath>
#include <numeric>

#include "path_sweep.h"
#include "threads.h"

namespace wildctc {
namespace {

class Viterbi {
  public:
    Viterbi(const Batch& b, int64_t n, int64_t offset, const PathResult& out)
        : frames_(logits_of(b, n)), graph_(b, n, offset), plan_(graph_, frames_.length, out.guide.row(n, b.frames)), n_(n),
          first_(n * b.frames), out_(out) {}

    int64_t choose(int64_t limit) { return plan_.choose(limit); }

    void run() {
        Sweep sweep(frames_, graph_);
        const int64_t last = plan_.stretches() - 1, stretch = plan_.stretch();
        Checkpoints saved(graph_.states(), plan_.saved(stretch));
        for (int64_t i = 0; i < last * stretch; ++i) {
            if (i % stretch == 0) saved.save(static_cast<size_t>(i / stretch), sweep.column());
            if (!sweep.advance(i * kTile, plan_.frames_in(i), plan_.window(i), nullptr)) return fail();
        }
        int64_t k = graph_.tokens;
        if (!replay(sweep, last, k)) return fail();
        int8_t state = best_end(sweep.column());
        out_.score[n_] = sweep.column().of[state].score[k];
        if (out_.score[n_] == kNone) return;
        trace(k, state);
        for (int64_t i = last - 1; i >= 0; --i) {
            saved.restore(static_cast<size_t>(i), sweep.column(), {plan_.window(i * stretch).begin, padded(k + 1)});
            replay(sweep, i, k);
            trace(k, state);
        }
    }

  private:
    void fail() { out_.score[n_] = std::numeric_limits<double>::quiet_NaN(); }

    // Of states that tie, as path_kernel.cpp has it.
    int8_t best_end(const PathColumn& column) const {
        Path best;
        int8_t found = kToken;
        for (const int8_t state : {kToken, kBlank, kStar}) {
            const Path path = column.of[state][graph_.tokens];
            const double near = kRounding * (1 + std::abs(path.score));
            if (path.score - near > best.score || (path.score + near >= best.score && path.arcs > best.arcs)) {  // not for −inf
                best = path;
                found = state;
            }
        }
        return found;
    }

    // Computes a stretch with backpointers, at the positions from which position k after it can be reached.
    bool replay(Sweep& sweep, int64_t stretch, int64_t k) {
        first_tile_ = stretch * plan_.stretch();
        cone_ = plan_.cone(first_tile_, std::min(plan_.tiles(), first_tile_ + plan_.stretch()), k);
        offset_.clear();
        int64_t bytes = 0;
        for (size_t i = 0; i < cone_.size(); ++i) {
            offset_.push_back(bytes);
            bytes += frames_of(i) * graph_.states() * cone_[i].size();
        }
        if (bytes > capacity_ || codes_ == nullptr) {
            codes_.reset();
            codes_.reset(new int8_t[static_cast<size_t>(capacity_ = bytes)]);
        }
        for (size_t i = 0; i < cone_.size(); ++i)
            if (!sweep.advance(first_frame(i), frames_of(i), cone_[i], codes_.get() + offset_[i])) return false;
        return true;
    }

    // Goes back from a state at position k after the stretch to those before it.
    void trace(int64_t& k, int8_t& state) const {
        for (size_t i = cone_.size(); i-- > 0;) {
            for (int64_t f = frames_of(i) - 1; f >= 0; --f) {
                const int64_t row = f * graph_.states() + state, at = first_ + first_frame(i) + f;
                const Step step = unpack(codes_[static_cast<size_t>(offset_[i] + row * cone_[i].size() + k - cone_[i].begin)]);
                out_.position[at] = static_cast<int32_t>(k);
                out_.state[at] = state;
                out_.arc[at] = step.arc;
                if (step.moved) k = step.arc == kWordBypass ? graph_.word_start(k) : k - 1;
                state = step.state;
            }
        }
    }

    // Of tile i of the stretch whose backpointers are known.
    int64_t first_frame(size_t i) const { return (first_tile_ + static_cast<int64_t>(i)) * kTile; }
    int64_t frames_of(size_t i) const { return plan_.frames_in(first_tile_ + static_cast<int64_t>(i)); }

    const Frames frames_;
    const PathGraph graph_;
    PathPlan plan_;
    const int64_t n_, first_;  // the utterance, and its first place in the results
    const PathResult& out_;
    std::vector<Window> cone_;     // of that stretch
    std::vector<int64_t> offset_;  // of each of its tiles, in codes_
    int64_t first_tile_ = 0, capacity_ = 0;
    std::unique_ptr<int8_t[]> codes_;
};

}  // namespace

void best_path(const Batch& b, const PathResult& result, const Budget& budget, int threads) {
    std::vector<int64_t> order(static_cast<size_t>(b.size)), offset(static_cast<size_t>(b.size));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t n = 1; n < b.size; ++n)
        offset[static_cast<size_t>(n)] = offset[static_cast<size_t>(n - 1)] + b.target_lengths[n - 1];
    const auto least = [&](int64_t n) { return Viterbi(b, n, offset[static_cast<size_t>(n)], result).choose(0); };
    const Share share = share_of(budget, b, "the best path", least, threads);
    parallel_over(order, share.threads, [&](int64_t n, int) {
        Viterbi viterbi(b, n, offset[static_cast<size_t>(n)], result);
        viterbi.choose(share.bytes);
        viterbi.run();
    });
}

}  // namespace wildctc
