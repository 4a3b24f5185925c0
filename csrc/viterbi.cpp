// The best path, in the log domain and in double: the same lattice with max instead of sum. Of paths that tie, the one with the
// most token arcs is taken, then the one with the fewest wildcards; of those that are equal in this too, the first in a
// fixed order: token, then blank, then ★.
#include <cmath>
#include <limits>
#include <numeric>

#include "engine.h"
#include "graph.h"
#include "rows.h"
#include "threads.h"

namespace wildctc {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

enum State : int8_t { kBlank = 0, kToken = 1, kStar = 2 };
enum Arc : int8_t { kNoArc = 0, kBypass = 1, kSelfLoop = 2, kWordBypass = 3 };

// How a state at position k was reached: from which state, by which arc, and whether from an earlier position (moved).
struct Step {
    int8_t state;
    int8_t arc;
    bool moved;
};

int8_t pack(int state, int arc, bool moved) { return static_cast<int8_t>(state | arc << 2 | (moved ? 16 : 0)); }
Step unpack(int8_t code) { return {static_cast<int8_t>(code & 3), static_cast<int8_t>(code >> 2 & 3), (code & 16) != 0}; }

// A path so far. `arcs` decides ties: kTokenArc for each token arc, minus 1 for each wildcard.
struct Path {
    double score = kNone;
    int64_t arcs = 0;
};

constexpr int64_t kTokenArc = int64_t{1} << 32;
constexpr double kRounding = 0x1p-44;  // paths whose scores differ by less tie: they may have added the same in another order

double slack(double score) { return kRounding * (1 + std::abs(score)); }

struct Best : Path {
    int8_t code = 0;

    Path then(double emission) const { return {score + emission, arcs}; }
};

// Finds the best of several ways into a state. Each is offered with the weight of its arc, if it has one.
class Fair {
  public:
    void offer(const Path& from, int8_t how, double weight = 0, int64_t arc = 0) {
        const double score = from.score + weight, near = slack(score);
        if (score - near > best_.score || (score + near >= best_.score && from.arcs + arc > best_.arcs))  // not for −inf
            best_ = {{score, from.arcs + arc}, how};
    }
    const Best& best() const { return best_; }

  private:
    Best best_;
};

// The same, but faster; not valid if another way ties with the best (`tied`), which is rare.
class Quick {
  public:
    void offer(const Path& from, int8_t how, double weight = 0, int64_t arc = 0) {
        const double score = from.score + weight;
        next_ = std::max(next_, std::min(score, score_));
        if (score > score_) {
            score_ = score;
            arcs_ = from.arcs + arc;
            code_ = how;
        }
    }
    bool tied() const { return next_ + slack(score_) >= score_; }
    Best best() const { return {{score_, arcs_}, code_}; }

  private:
    double score_ = kNone, next_ = kNone;
    int64_t arcs_ = 0;
    int8_t code_ = 0;
};

// The best way into a state; `ways` offers each of them.
template <class Ways>
Best best_of(const Ways& ways) {
    Quick quick;
    ways(quick);
    if (!quick.tied()) return quick.best();
    Fair fair;
    ways(fair);
    return fair.best();
}

struct Column {
    std::vector<Path> of[3];  // by state
    explicit Column(int64_t positions) {
        for (auto& state : of) state.resize(static_cast<size_t>(positions));
    }
};

// Weights of the wildcard arcs that lead to a position.
struct ArcsInto {
    double self_loop = kNone, bypass = kNone, word = kNone;
    int64_t word_start = 0;
};

class Viterbi {
  public:
    Viterbi(const Batch& b, int64_t n, int64_t offset)
        : batch_(b), n_(n), U_(b.target_lengths[n]), wildcards_(b.wildcards()), labels_(b.targets.row(n, offset)),
          words_(b.words.data != nullptr ? b.words.row(n, offset) : nullptr), into_(static_cast<size_t>(U_ + 1)),
          either_(static_cast<size_t>(U_ + 1)),
          frames_(logits_of(b, n)) {
        for (int64_t k = 0; k <= U_; ++k) {
            ArcsInto& into = into_[static_cast<size_t>(k)];
            if (b.self_loop.present() && has_loop(b, words_, k, U_)) into.self_loop = b.self_loop.of(n, k);
            if (b.bypass.present() && k > 0) into.bypass = b.bypass.of(n, k - 1);
        }
        if (!b.word_bypass.present()) return;
        for (const WordSpan& span : word_spans(words_, U_)) {
            into_[static_cast<size_t>(span.end)].word = b.word_bypass.of(n, span.word);
            into_[static_cast<size_t>(span.end)].word_start = span.start;
        }
    }

    void run(const PathResult& out) {
        const int64_t T = frames_.length, K = U_ + 1;
        Column now(K), next(K);
        now.of[kBlank][0].score = 0;
        back_.assign(static_cast<size_t>(T * K * 3), 0);
        std::vector<double> row(static_cast<size_t>(batch_.outputs)), emission(static_cast<size_t>(K));
        for (int64_t t = 0; t < T; ++t) {
            if (!emissions(load_row<double>(frames_, t, row.data()), emission)) {
                out.score[n_] = std::numeric_limits<double>::quiet_NaN();
                return;
            }
            advance(now, next, emission, &back_[static_cast<size_t>(t * K * 3)]);
            std::swap(now, next);
        }
        const Best last = best_of([&](auto& best) {
            for (const int8_t state : {kToken, kBlank, kStar}) best.offer(now.of[state][static_cast<size_t>(U_)], state);
        });
        out.score[n_] = last.score;
        if (last.score > kNone) trace(last.code, out);
    }

  private:
    bool emissions(const double* x, std::vector<double>& token) {
        const double blank = x[batch_.blank];
        double others = kNone, sum = 0;  // the largest of the other logits, and the sum of their e^(logit − largest)
        for (int64_t v = 0; v < batch_.outputs; ++v) {
            if (!(x[v] < std::numeric_limits<double>::infinity())) return false;
            if (v != batch_.blank) others = std::max(others, x[v]);
        }
        const double max = std::max(others, blank);
        if (max == kNone) return false;
        for (int64_t v = 0; v < batch_.outputs && others > kNone; ++v)
            if (v != batch_.blank) sum += std::exp(x[v] - others);
        // relative to the largest of all, so that a common offset does not cost precision
        const double total = std::log(std::exp(blank - max) + sum * std::exp(others - max));
        blank_ = blank - max - total;
        star_ = others > kNone ? others - max + std::log(sum / static_cast<double>(batch_.outputs - 1)) - total : kNone;
        for (int64_t k = 1; k <= U_; ++k) token[static_cast<size_t>(k)] = x[labels_[k - 1]] - max - total;
        return true;
    }

    void advance(const Column& from, Column& to, const std::vector<double>& emission, int8_t* back) {
        for (size_t k = 0; k <= static_cast<size_t>(U_); ++k)
            either_[k] = best_of([&](auto& best) {
                best.offer(from.of[kToken][k], kToken);
                best.offer(from.of[kBlank][k], kBlank);
            });
        for (size_t k = 0; k <= static_cast<size_t>(U_); ++k, back += 3) {
            const Best blank = best_of([&](auto& best) {
                best.offer(either_[k], pack(either_[k].code, kNoArc, false));
                if (wildcards_) best.offer(from.of[kStar][k], pack(kStar, kNoArc, false));
            });
            to.of[kBlank][k] = blank.then(blank_);
            back[kBlank] = blank.code;
            if (k > 0) {
                const Best token = best_of([&](auto& best) { into_token(from, k, best); });
                to.of[kToken][k] = token.then(emission[k]);
                back[kToken] = token.code;
            }
            if (!wildcards_) continue;
            const Best star = best_of([&](auto& best) { into_star(from, k, best); });
            to.of[kStar][k] = star.then(star_);
            back[kStar] = star.code;
        }
    }

    template <class Ways>
    void into_token(const Column& from, size_t k, Ways& best) const {
        best.offer(from.of[kToken][k], pack(kToken, kNoArc, false));
        const bool repeated = k > 1 && labels_[k - 1] == labels_[k - 2];
        if (repeated) {
            best.offer(from.of[kBlank][k - 1], pack(kBlank, kNoArc, true), 0, kTokenArc);
        } else {
            best.offer(either_[k - 1], pack(either_[k - 1].code, kNoArc, true), 0, kTokenArc);
        }
        if (wildcards_) best.offer(from.of[kStar][k - 1], pack(kStar, kNoArc, true), 0, kTokenArc);
    }

    template <class Ways>
    void into_star(const Column& from, size_t k, Ways& best) const {
        const ArcsInto& into = into_[k];
        const auto offer_arc = [&](size_t source, double weight, Arc arc, bool moved) {
            if (weight > kNone) best.offer(either_[source], pack(either_[source].code, arc, moved), weight, -1);
        };
        best.offer(from.of[kStar][k], pack(kStar, kNoArc, false));
        offer_arc(k, into.self_loop, kSelfLoop, false);
        offer_arc(k - 1, into.bypass, kBypass, true);
        offer_arc(static_cast<size_t>(into.word_start), into.word, kWordBypass, true);
    }

    void trace(int8_t state, const PathResult& out) const {
        int64_t k = U_;
        for (int64_t t = frames_.length - 1; t >= 0; --t) {
            const Step step = unpack(back_[static_cast<size_t>((t * (U_ + 1) + k) * 3 + state)]);
            const int64_t at = n_ * batch_.frames + t;
            out.position[at] = static_cast<int32_t>(k);
            out.state[at] = state;
            out.arc[at] = step.arc;
            if (step.moved) k = step.arc == kWordBypass ? into_[static_cast<size_t>(k)].word_start : k - 1;
            state = step.state;
        }
    }

    const Batch& batch_;
    const int64_t n_, U_;
    const bool wildcards_;
    const int64_t *labels_, *words_;
    std::vector<ArcsInto> into_;
    std::vector<Best> either_;  // for each position: the better of token and blank, and which of them it is
    Frames frames_;
    double blank_ = 0, star_ = 0;
    std::vector<int8_t> back_;
};

}  // namespace

void best_path(const Batch& b, const PathResult& result, int threads) {
    std::vector<int64_t> order(static_cast<size_t>(b.size)), offset(static_cast<size_t>(b.size));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t n = 1; n < b.size; ++n)
        offset[static_cast<size_t>(n)] = offset[static_cast<size_t>(n - 1)] + b.target_lengths[n - 1];
    parallel_over(order, threads, [&](int64_t n, int) { Viterbi(b, n, offset[static_cast<size_t>(n)]).run(result); });
}

}  // namespace wildctc
