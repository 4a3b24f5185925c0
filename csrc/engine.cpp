#include "engine.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <limits>
#include <new>
#include <string>

#include "graph.h"
#include "pages.h"
#include "threads.h"
#include "transcript.h"

namespace wildctc {
namespace {

Kernels choose_kernels() {
#if defined(WILDCTC_X86)
    const char* cap = std::getenv("WILDCTC_ISA");  // for tests: "portable" or "avx2" limits the dispatch
    const std::string limit = cap != nullptr ? cap : "";
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (has_avx512 && limit != "portable" && limit != "avx2") return avx512::kernels();
    if (has_avx2 && limit != "portable") return avx2::kernels();
#endif
    return portable::kernels();
}

}  // namespace

const Kernels& kernels() {
    static const Kernels chosen = choose_kernels();
    return chosen;
}

namespace {

template <class R>
const Kernel<R>& kernel() {
    if constexpr (sizeof(R) == sizeof(float)) {
        return kernels().single;
    } else {
        return kernels().real;
    }
}

// Scratch memory of one worker, kept for its next utterance.
class Scratch {
  public:
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    ~Scratch() { release(); }
    char* reserve(int64_t bytes) {
        if (bytes > capacity_) {
            release();
            block_ = static_cast<char*>(::operator new(static_cast<size_t>(bytes), kAlignment));
            prefer_large_pages(block_, bytes);
            capacity_ = bytes;
        }
        return block_;
    }

    // Frees a large block: training calls reuse small ones, and one long recording must not keep its memory.
    void trim() {
        if (capacity_ > kKept) release();
    }

  private:
    static constexpr std::align_val_t kAlignment{64};
    static constexpr int64_t kKept = int64_t{8} << 20;

    void release() {
        if (block_ != nullptr) ::operator delete(block_, kAlignment);
        block_ = nullptr;
        capacity_ = 0;
    }

    char* block_ = nullptr;
    int64_t capacity_ = 0;
};

// The memory of all workers of the calling thread. It outlives them, because the first use of new memory is slow.
thread_local std::deque<Scratch> scratch;

// More memory than this makes an utterance no faster: states that are not in a cache are computed again as fast as read.
constexpr int64_t kEnough = int64_t{256} << 20;

struct Plan {
    std::vector<int64_t> order;          // longest first, so that all threads end at about the same time
    std::vector<int64_t> target_offset;  // into concatenated targets
    int threads;
};

Plan plan_of(const Batch& b, int threads) {
    Plan plan;
    std::vector<int64_t> cost(static_cast<size_t>(b.size));
    int64_t offset = 0, total = 0;
    for (int64_t n = 0; n < b.size; ++n) {
        const int64_t positions = padded(b.target_lengths[n] + 1);
        plan.order.push_back(n);
        plan.target_offset.push_back(offset);
        offset += b.target_lengths[n];
        total += cost[static_cast<size_t>(n)] = b.input_lengths[n] * (4 * positions + b.outputs);
    }
    std::stable_sort(plan.order.begin(), plan.order.end(),
                     [&](int64_t i, int64_t j) { return cost[static_cast<size_t>(i)] > cost[static_cast<size_t>(j)]; });
    constexpr int64_t worth_a_thread = 100'000;  // cost units, about 0.1 ms: several times the cost of a start
    plan.threads = static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(threads, total / worth_a_thread)));
    return plan;
}

template <class R>
Frames gradient_of(const Batch& b, int64_t n, const LossResult& r) {
    R* first = r.gradient != nullptr ? static_cast<R*>(r.gradient) + n * r.stride_n : nullptr;
    return {first, r.stride_t, 1, b.dtype, b.input_lengths[n], b.frames, b.outputs, b.blank};
}

// As in torch, `mean` divides each loss by the length of its target, and then averages.
double share_of(Reduction reduction, const Batch& b, int64_t n) {
    if (reduction != Reduction::mean) return 1;
    const int64_t length = b.graphs != nullptr ? b.graphs->lengths[n] : b.target_lengths[n];
    return 1 / (static_cast<double>(b.size) * static_cast<double>(std::max<int64_t>(1, length)));
}

template <class R>
void reduce(const Batch& b, const LossResult& result) {
    R* losses = static_cast<R*>(result.losses);
    double total = b.size == 0 && result.reduction == Reduction::mean ? std::numeric_limits<double>::quiet_NaN() : 0;
    for (int64_t n = 0; n < b.size; ++n) {
        if (result.zero_infinity && losses[n] == std::numeric_limits<R>::infinity()) losses[n] = 0;
        total += static_cast<double>(losses[n]) * share_of(result.reduction, b, n);
    }
    if (result.reduction != Reduction::none) *static_cast<R*>(result.reduced) = static_cast<R>(total);
}

template <class R>
double loss_of(const Batch& b, int64_t n, const Graph<R>& graph, const LossResult& r, int64_t limit, Scratch& scratch) {
    const Frames logits = logits_of(b, n);
    char* memory = scratch.reserve(kernel<R>().workspace(logits, graph, r.backward, limit));
    if (!r.backward) return -kernel<R>().forward(logits, graph, memory);
    const ArcCounts counts{r.bypass.row(n), r.self_loop.row(n), r.word.row(n), r.token.row(n)};
    const Frames gradient = gradient_of<R>(b, n, r);
    return -kernel<R>().forward_backward(logits, graph, gradient, share_of(r.reduction, b, n), counts, memory, limit);
}

template <class R>
double loss_of(const Batch& b, int64_t n, int64_t target_offset, const LossResult& r, int64_t limit, Scratch& scratch) {
    if (b.chain(n)) return loss_of<R>(b, n, GraphOf<R>(b, n, target_offset).view(), r, limit, scratch);
    return loss_of<R>(b, n, TranscriptOf<R>(b, n, target_offset).view(), r, limit, scratch);
}

// The least bytes for utterance n: its graph and its scratch memory.
template <class R>
int64_t least_bytes(const Batch& b, int64_t n, int64_t target_offset, bool backward) {
    const auto least = [&](const auto& graph) {
        return graph.bytes() + kernel<R>().workspace(logits_of(b, n), graph.view(), backward, 0);
    };
    return b.chain(n) ? least(GraphOf<R>(b, n, target_offset)) : least(TranscriptOf<R>(b, n, target_offset));
}

template <class R>
void loss_as(const Batch& b, const LossResult& result, const Budget& budget, int threads) {
    Plan plan = plan_of(b, threads);
    const auto least = [&](int64_t n) { return least_bytes<R>(b, n, plan.target_offset[static_cast<size_t>(n)], result.backward); };
    const Share share = share_of(budget, b, result.backward ? "the lattice" : "the loss", least, plan.threads);
    plan.threads = share.threads;
    const int64_t limit = std::min(share.bytes, kEnough);
    std::deque<Scratch>& own = scratch;  // `scratch` is thread_local: in a worker it is another one
    while (own.size() < static_cast<size_t>(plan.threads)) own.emplace_back();
    prefer_large_pages(result.gradient, b.frames * b.size * b.outputs * static_cast<int64_t>(sizeof(R)));
    parallel_over(plan.order, plan.threads, [&](int64_t n, int worker) {
        const double loss = loss_of<R>(b, n, plan.target_offset[static_cast<size_t>(n)], result, limit, own[static_cast<size_t>(worker)]);
        static_cast<R*>(result.losses)[n] = static_cast<R>(loss);
    });
    for (Scratch& each : own) each.trim();
    reduce<R>(b, result);
}

}  // namespace

void loss(const Batch& b, const LossResult& result, const Budget& budget, int threads) {
    if (b.dtype == DType::float64) {
        loss_as<double>(b, result, budget, threads);
    } else {
        loss_as<float>(b, result, budget, threads);
    }
}

const char* instruction_set() { return kernels().isa; }

}  // namespace wildctc
