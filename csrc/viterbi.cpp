// The best path, in the log domain and in double: the same lattice with max for sum. Candidates are tried token first,
// then blank, then ★, and only a strictly better one replaces an earlier one: so ties go to the token arc.
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

// How a state at position k was reached: from which state, over which arc, and whether from k or from an earlier one.
struct Step {
    int8_t state;
    int8_t arc;
    bool moved;
};

int8_t pack(int state, int arc, bool moved) { return static_cast<int8_t>(state | arc << 2 | (moved ? 16 : 0)); }
Step unpack(int8_t code) { return {static_cast<int8_t>(code & 3), static_cast<int8_t>(code >> 2 & 3), (code & 16) != 0}; }

struct Best {
    double score = kNone;
    int8_t code = 0;
    void offer(double candidate, int8_t how) {
        if (candidate > score) {
            score = candidate;
            code = how;
        }
    }
};

struct Column {
    std::vector<double> of[3];  // by state
    explicit Column(int64_t positions) {
        for (auto& state : of) state.assign(static_cast<size_t>(positions), kNone);
    }
};

struct WordInto {
    int64_t start = -1;
    double weight = kNone;
};

class Viterbi {
  public:
    Viterbi(const Batch& b, int64_t n, int64_t offset)
        : batch_(b), n_(n), U_(b.target_lengths[n]), labels_(b.targets.row(n, offset)),
          words_(b.words.data != nullptr ? b.words.row(n, offset) : nullptr), into_(static_cast<size_t>(U_ + 1)),
          frames_{static_cast<char*>(b.logits) + n * b.stride_n * element_size(b.dtype), b.stride_t, b.stride_c, b.dtype,
                  b.input_lengths[n], b.frames, b.outputs, b.blank} {
        if (!b.word_bypass.present()) return;
        for (const WordSpan& span : word_spans(words_, U_))
            into_[static_cast<size_t>(span.end)] = {span.start, b.word_bypass.of(n, span.word)};
    }

    void run(const PathResult& out) {
        const int64_t T = frames_.length, K = U_ + 1;
        Column now(K), next(K);
        now.of[kBlank][0] = 0;
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
        Best last;
        for (const int state : {kToken, kBlank, kStar}) last.offer(now.of[state][static_cast<size_t>(U_)], static_cast<int8_t>(state));
        out.score[n_] = last.score;
        if (last.score > kNone) trace(last.code, out);
    }

  private:
    static int64_t element_size(DType d) { return d == DType::float64 ? 8 : d == DType::float32 ? 4 : 2; }

    bool emissions(const double* x, std::vector<double>& token) {
        double max = kNone, sum = 0, max_other = kNone, sum_other = 0;
        for (int64_t v = 0; v < batch_.outputs; ++v) {
            if (!(x[v] < std::numeric_limits<double>::infinity())) return false;
            max = std::max(max, x[v]);
            if (v != batch_.blank) max_other = std::max(max_other, x[v]);
        }
        if (max == kNone) return false;
        for (int64_t v = 0; v < batch_.outputs; ++v) {
            sum += std::exp(x[v] - max);
            if (v != batch_.blank && max_other > kNone) sum_other += std::exp(x[v] - max_other);
        }
        const double total = max + std::log(sum);
        blank_ = x[batch_.blank] - total;
        star_ = max_other > kNone
                    ? max_other + std::log(sum_other) - total - std::log(static_cast<double>(batch_.outputs - 1))
                    : kNone;
        for (int64_t k = 1; k <= U_; ++k) token[static_cast<size_t>(k)] = x[labels_[k - 1]] - total;
        return true;
    }

    void advance(const Column& from, Column& to, const std::vector<double>& emission, int8_t* back) const {
        for (int64_t k = 0; k <= U_; ++k, back += 3) {
            const size_t i = static_cast<size_t>(k);
            Best blank;
            for (const int s : {kToken, kBlank, kStar}) blank.offer(from.of[s][i], pack(s, kNoArc, false));
            to.of[kBlank][i] = blank.score + blank_;
            back[kBlank] = blank.code;
            if (k > 0) {
                const Best token = into_token(from, i);
                to.of[kToken][i] = token.score + emission[i];
                back[kToken] = token.code;
            }
            const Best star = into_star(from, k);
            to.of[kStar][i] = star.score + star_;
            back[kStar] = star.code;
        }
    }

    Best into_token(const Column& from, size_t k) const {
        Best best;
        best.offer(from.of[kToken][k], pack(kToken, kNoArc, false));
        if (k > 1 && labels_[k - 1] != labels_[k - 2]) best.offer(from.of[kToken][k - 1], pack(kToken, kNoArc, true));
        best.offer(from.of[kBlank][k - 1], pack(kBlank, kNoArc, true));
        best.offer(from.of[kStar][k - 1], pack(kStar, kNoArc, true));
        return best;
    }

    Best into_star(const Column& from, int64_t k) const {
        Best best;
        const auto offer_arc = [&](int64_t source, double weight, Arc arc) {
            for (const int s : {kToken, kBlank})
                best.offer(from.of[s][static_cast<size_t>(source)] + weight, pack(s, arc, source != k));
        };
        best.offer(from.of[kStar][static_cast<size_t>(k)], pack(kStar, kNoArc, false));
        if (batch_.self_loop.present() && has_loop(batch_, words_, k, U_)) offer_arc(k, batch_.self_loop.of(n_, k), kSelfLoop);
        if (batch_.bypass.present() && k > 0) offer_arc(k - 1, batch_.bypass.of(n_, k - 1), kBypass);
        const WordInto& word = into_[static_cast<size_t>(k)];
        if (word.start >= 0) offer_arc(word.start, word.weight, kWordBypass);
        return best;
    }

    void trace(int8_t state, const PathResult& out) const {
        int64_t k = U_;
        for (int64_t t = frames_.length - 1; t >= 0; --t) {
            const Step step = unpack(back_[static_cast<size_t>((t * (U_ + 1) + k) * 3 + state)]);
            const int64_t at = n_ * batch_.frames + t;
            out.position[at] = static_cast<int32_t>(k);
            out.state[at] = state;
            out.arc[at] = step.arc;
            if (step.moved) k = step.arc == kWordBypass ? into_[static_cast<size_t>(k)].start : k - 1;
            state = step.state;
        }
    }

    const Batch& batch_;
    const int64_t n_, U_;
    const int64_t *labels_, *words_;
    std::vector<WordInto> into_;
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
