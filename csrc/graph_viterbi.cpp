// The best path through a transcript graph, in the log domain and in double: the recursion of the specification, §10, with max
// instead of sum. Ties are decided as in viterbi.cpp; if all else is equal, the arc with the lower number is taken.
//
// The steps back are kept for all frames if they are few. If not, the column before each stretch of frames is kept, and the
// stretches are computed again from last to first: twice the time, and memory that grows with √T.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "engine.h"
#include "rows.h"
#include "threads.h"
#include "transcript.h"

namespace wildctc {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr int64_t kTokenArc = int64_t{1} << 32;  // in Path::arcs; a wildcard is −1
constexpr double kRounding = 0x1p-44;  // paths whose scores differ by less tie

enum State : int32_t { kBlank = 0, kToken = 1, kStar = 2 };
enum Arc : int32_t { kNoArc = 0, kBypass = 1, kSelfLoop = 2, kWordBypass = 3 };

// Where a path was one frame earlier, and the kind of arc by which it entered ★ since.
struct Step {
    int32_t state : 3, arc : 3, place : 26;  // place: a token arc, or a state of the graph
};
constexpr int64_t kMostPlaces = int64_t{1} << 25;

struct Path {
    double score = kNone;
    int64_t arcs = 0;
    Step from{kBlank, kNoArc, 0};
    int32_t via = -1;  // of ★: the token arc that was bypassed, or the word arc

    // Takes another way if it is better.
    void offer(const Path& other, Step how, double weight = 0, int64_t more = 0, int32_t through = -1) {
        const double sum = other.score + weight, slack = kRounding * (1 + std::abs(sum));
        if (sum - slack > score || (sum + slack >= score && other.arcs + more > arcs)) {  // not for −inf
            score = sum;
            arcs = other.arcs + more;
            from = how;
            via = through;
        }
    }
};

// The best paths that end in each state of the lattice, after a frame.
struct Column {
    std::vector<Path> blank, token, star;

    Column(int64_t states, int64_t tokens)
        : blank(static_cast<size_t>(states)), token(static_cast<size_t>(tokens)), star(static_cast<size_t>(states)) {}
};

class GraphViterbi {
  public:
    GraphViterbi(const Batch& b, int64_t n, int64_t offset)
        : t_(b, n, offset), frames_(logits_of(b, n)), into_(static_cast<size_t>(t_.states)),
          words_into_(static_cast<size_t>(t_.states)), either_(static_cast<size_t>(t_.states)),
          width_(t_.tokens + 2 * t_.states), row_(static_cast<size_t>(frames_.outputs)),
          emission_(static_cast<size_t>(t_.tokens)) {
        if (width_ > kMostPlaces) throw std::invalid_argument("utterance " + std::to_string(n) + ": the graph is too large");
        for (int64_t a = 0; a < t_.tokens; ++a) into_[static_cast<size_t>(t_.target(a))].push_back(static_cast<int32_t>(a));
        for (int64_t i = 0; i < t_.words; ++i)
            if (t_.word_weight(i) > kNone) words_into_[static_cast<size_t>(t_.word_target(i))].push_back(static_cast<int32_t>(i));
    }

    // Chooses the frames of a stretch: all, if their steps are few or the limit allows them; otherwise those that take the
    // least memory. Returns the bytes.
    int64_t choose(int64_t limit) {
        const int64_t T = std::max<int64_t>(1, frames_.length);
        const int64_t column = width_ * static_cast<int64_t>(sizeof(Path));
        const int64_t frame = width_ * static_cast<int64_t>(sizeof(Step)) + t_.states * static_cast<int64_t>(sizeof(int32_t));
        const int64_t fixed = 2 * column + 128 * (t_.states + t_.tokens) + 8 * frames_.outputs;
        stretch_ = T;
        if (fixed + T * frame <= std::min(limit, kSmall)) return fixed + T * frame;
        stretch_ = std::clamp<int64_t>(std::llround(std::sqrt(static_cast<double>(T * column / frame))), 1, T);
        return fixed + (T / stretch_ + 1) * column + stretch_ * frame;
    }

    void run(const GraphPathResult& out) {
        const int64_t T = frames_.length;
        Column now(t_.states, t_.tokens), next = now;
        now.blank[0].score = 0;
        std::vector<Column> saved;
        back_.resize(static_cast<size_t>(std::min(T, stretch_) * width_));
        via_.resize(static_cast<size_t>(std::min(T, stretch_) * t_.states));
        for (int64_t t = 0; t < T; t += stretch_) {
            if (stretch_ < T) saved.push_back(now);
            if (!walk(t, std::min(T, t + stretch_), now, next)) {
                out.score[t_.n] = std::numeric_limits<double>::quiet_NaN();
                return;
            }
        }
        Path last;
        for (int64_t q = 0; q < t_.states; ++q) {
            if (!(t_.final_weight(q) > kNone)) continue;
            offer_tokens(now, q, t_.final_weight(q), last);
            last.offer(now.blank[static_cast<size_t>(q)], step(kBlank, q), t_.final_weight(q));
            last.offer(now.star[static_cast<size_t>(q)], step(kStar, q), t_.final_weight(q));
        }
        out.score[t_.n] = last.score;
        Step here = last.from;
        for (int64_t begin = (T - 1) / stretch_ * stretch_; last.score > kNone && begin >= 0; begin -= stretch_) {
            const int64_t end = std::min(T, begin + stretch_);
            if (end < T) {  // the last stretch is still there
                now = saved[static_cast<size_t>(begin / stretch_)];
                walk(begin, end, now, next);
            }
            here = trace(here, begin, end, out);
        }
    }

  private:
    static constexpr int64_t kSmall = int64_t{64} << 20;  // bytes of steps that are kept without a second pass

    // Advances over the frames [begin, end) and keeps their steps. False where a frame has no softmax.
    bool walk(int64_t begin, int64_t end, Column& now, Column& next) {
        for (int64_t t = begin; t < end; ++t) {
            if (!emissions(load_row<double>(frames_, t, row_.data()), emission_)) return false;
            advance(now, next, emission_);
            keep(next, t - begin);
            std::swap(now, next);
        }
        return true;
    }

    static Step step(State state, int64_t place, Arc arc = kNoArc) { return {state, arc, static_cast<int32_t>(place)}; }

    bool emissions(const double* x, std::vector<double>& token) {
        const int64_t outputs = frames_.outputs, blank = frames_.blank;
        double others = kNone, sum = 0;
        for (int64_t v = 0; v < outputs; ++v) {
            if (!(x[v] < std::numeric_limits<double>::infinity())) return false;
            if (v != blank) others = std::max(others, x[v]);
        }
        const double max = std::max(others, x[blank]);
        if (max == kNone) return false;
        for (int64_t v = 0; v < outputs && others > kNone; ++v)
            if (v != blank) sum += std::exp(x[v] - others);
        const double total = std::log(std::exp(x[blank] - max) + sum * std::exp(others - max));
        blank_ = x[blank] - max - total;
        star_ = others > kNone ? others - max + std::log(sum / static_cast<double>(outputs - 1)) - total : kNone;
        for (int64_t a = 0; a < t_.tokens; ++a) token[static_cast<size_t>(a)] = x[t_.labels[a]] - max - total;
        return true;
    }

    // The tokens that lead into a state, except for those with a label.
    void offer_tokens(const Column& from, int64_t state, double weight, Path& best, int64_t more = 0, int64_t label = -1) const {
        for (const int32_t a : into_[static_cast<size_t>(state)])
            if (t_.labels[a] != label) best.offer(from.token[static_cast<size_t>(a)], step(kToken, a), weight, more);
    }

    void advance(const Column& from, Column& to, const std::vector<double>& emission) {
        for (int64_t q = 0; q < t_.states; ++q) {
            Path& best = either_[static_cast<size_t>(q)] = Path{};
            offer_tokens(from, q, 0, best);
            best.offer(from.blank[static_cast<size_t>(q)], step(kBlank, q));
        }
        for (int64_t q = 0; q < t_.states; ++q) {
            Path& blank = to.blank[static_cast<size_t>(q)] = either_[static_cast<size_t>(q)];
            blank.offer(from.star[static_cast<size_t>(q)], step(kStar, q));
            blank.score += blank_;
            Path& star = to.star[static_cast<size_t>(q)] = into_star(from, q);
            star.score += star_;
        }
        for (int64_t a = 0; a < t_.tokens; ++a) {
            Path best;
            const int64_t q = t_.source(a);
            const double weight = t_.token_weight(a);
            best.offer(from.token[static_cast<size_t>(a)], step(kToken, a));
            offer_tokens(from, q, weight, best, kTokenArc, t_.labels[a]);
            best.offer(from.blank[static_cast<size_t>(q)], step(kBlank, q), weight, kTokenArc);
            best.offer(from.star[static_cast<size_t>(q)], step(kStar, q), weight, kTokenArc);
            best.score += emission[static_cast<size_t>(a)];
            to.token[static_cast<size_t>(a)] = best;
        }
    }

    Path into_star(const Column& from, int64_t q) const {
        Path best;
        best.offer(from.star[static_cast<size_t>(q)], step(kStar, q));
        const auto offer = [&](int64_t source, double weight, Arc arc, int32_t via) {
            const Path& either = either_[static_cast<size_t>(source)];
            const Step how{either.from.state, arc, either.from.place};
            if (weight > kNone) best.offer(either, how, weight, -1, via);
        };
        offer(q, t_.loop_weight(q), kSelfLoop, -1);
        for (const int32_t a : into_[static_cast<size_t>(q)]) offer(t_.source(a), t_.bypass_weight(a), kBypass, a);
        for (const int32_t i : words_into_[static_cast<size_t>(q)]) offer(t_.word_source(i), t_.word_weight(i), kWordBypass, i);
        return best;
    }

    // 4 bytes a token arc, and 12 a state.
    void keep(const Column& column, int64_t t) {
        Step* step = &back_[static_cast<size_t>(t * width_)];
        for (const auto* paths : {&column.token, &column.blank, &column.star})
            for (const Path& path : *paths) *step++ = path.from;
        for (int64_t q = 0; q < t_.states; ++q)
            via_[static_cast<size_t>(t * t_.states + q)] = column.star[static_cast<size_t>(q)].via;
    }

    // Follows the steps from frame `end` to frame `begin`, whose steps are the first that are kept.
    Step trace(Step here, int64_t begin, int64_t end, const GraphPathResult& out) const {
        for (int64_t t = end - begin - 1; t >= 0; --t) {
            const int64_t before[] = {t_.tokens, 0, t_.tokens + t_.states};
            const Step step = back_[static_cast<size_t>(t * width_ + before[here.state] + here.place)];
            const int64_t at = t_.n * t_.b.frames + begin + t;
            out.place[at] = here.place;
            out.state[at] = static_cast<int8_t>(here.state);
            out.arc[at] = static_cast<int8_t>(step.arc);
            out.via[at] = here.state == kStar ? via_[static_cast<size_t>(t * t_.states + here.place)] : -1;
            here = step;
        }
        return here;
    }

    const Transcript t_;
    const Frames frames_;
    std::vector<std::vector<int32_t>> into_, words_into_;  // of each state: the token arcs and word arcs into it
    std::vector<Path> either_;  // of each state: the best of its blank and of the tokens that lead into it
    const int64_t width_;
    double blank_ = 0, star_ = 0;
    int64_t stretch_ = 1;
    std::vector<double> row_, emission_;
    std::vector<Step> back_;    // (frames of a stretch, token arcs, blanks, stars)
    std::vector<int32_t> via_;  // (frames of a stretch, states)
};

}  // namespace

void graph_best_path(const Batch& b, const GraphPathResult& result, const Budget& budget, int threads) {
    std::vector<int64_t> order(static_cast<size_t>(b.size)), offset(static_cast<size_t>(b.size));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t n = 1; n < b.size; ++n)
        offset[static_cast<size_t>(n)] = offset[static_cast<size_t>(n - 1)] + b.target_lengths[n - 1];
    const auto viterbi = [&](int64_t n) { return GraphViterbi(b, n, offset[static_cast<size_t>(n)]); };
    const Share share = share_of(budget, b, "the best path", [&](int64_t n) { return viterbi(n).choose(0); }, threads);
    parallel_over(order, share.threads, [&](int64_t n, int) {
        GraphViterbi one = viterbi(n);
        one.choose(share.bytes);
        one.run(result);
    });
}

}  // namespace wildctc
