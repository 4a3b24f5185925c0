// From a frame's logits to its emissions, and back to its gradient. Included by kernel.cpp inside its namespace.

// Largest non-blank logit and the sum of e^(logit − largest): taken apart from blank, so that ★ keeps its value and
// its gradient where P(blank) rounds to 1. False if a logit is NaN or +inf, or all of them are −inf.
template <class R>
static void scan(const R* x, int64_t count, R& max, int& bad) {
    R m = max;
    int b = bad;
    SIMD_REDUCTION(reduction(max : m) reduction(| : b))
    for (int64_t v = 0; v < count; ++v) {
        m = x[v] > m ? x[v] : m;
        b |= !(x[v] < std::numeric_limits<R>::infinity());
    }
    max = m;
    bad = b;
}

template <class R>
static R sum_exp(const R* x, int64_t count, R max) {
    R sum = 0;
    SIMD_REDUCTION(reduction(+ : sum))
    for (int64_t v = 0; v < count; ++v) sum += exp_nonpositive(x[v] - max);
    return sum;
}

template <class R>
static bool row_stats(const R* x, int64_t outputs, int64_t blank, R& max, R& sum) {
    constexpr R infinity = std::numeric_limits<R>::infinity();
    int bad = !(x[blank] < infinity);
    max = -infinity;
    scan(x, blank, max, bad);
    scan(x + blank + 1, outputs - blank - 1, max, bad);
    if (bad || (max == -infinity && x[blank] == -infinity)) return false;
    sum = 0;
    if (max > -infinity) sum = sum_exp(x, blank, max) + sum_exp(x + blank + 1, outputs - blank - 1, max);
    return true;
}

// A frame's softmax, but for the tokens.
template <class R>
struct FrameScores {
    R top, inverse_total;  // P(v) = e^(x_v − top) · inverse_total
    R non_blank;           // 1 − P(blank), not by subtraction
    Scaled<R> blank, star;
};

template <class R>
static FrameScores<R> frame_scores(R blank_logit, R max, R sum, int64_t outputs) {
    FrameScores<R> f;
    f.top = larger(max, blank_logit);
    const R others = sum * exp_nonpositive(max - f.top);
    f.inverse_total = R(1) / (others + exp_nonpositive(blank_logit - f.top));
    f.non_blank = others * f.inverse_total;
    f.blank = normalised(scaled_exp(blank_logit - f.top) * Scaled<R>{f.inverse_total, 0});
    f.star = {R(1), Format<R>::zero};
    if (sum > 0) {
        const R mean = sum * f.inverse_total / static_cast<R>(outputs - 1);
        f.star = normalised(scaled_exp(max - f.top) * Scaled<R>{mean, 0});
    }
    return f;
}

template <class R>
static void token_emissions(const R* x, const Graph<R>& g, const FrameScores<R>& f, Numbers<R> out) {
    R* m = out.m;
    for (int64_t k = 1; k <= g.tokens; ++k) m[k] = x[g.label[k]];
    SIMD
    for (int64_t k = 1; k <= g.tokens; ++k) {
        const Scaled<R> p = scaled_exp(m[k] - f.top);
        out.set(k, {p.m * f.inverse_total, p.e});
    }
}

// Expected number of times that a frame is spent in each label; `total` of them is one frame.
template <class R>
struct Occupancy {
    R blank, star, total;
};

// grad_v = P_v − γ_v − γ_★ q_v, q the softmax over the non-blank outputs; with P_v = q_v (1 − P_blank) that takes one
// exponential an output.
template <class R>
static void gradient_row_of(const R* x, const Graph<R>& g, int64_t outputs, int64_t blank, R max, R sum,
                            const Occupancy<R>& n, const R* token_count, R scale, R* out) {
    const FrameScores<R> f = frame_scores(x[blank], max, sum, outputs);
    const R share = scale / n.total;
    const R factor = sum > 0 ? (f.non_blank * scale - n.star * share) / sum : R(0);
    const R shift = sum > 0 ? max : R(0);
    const int64_t ranges[2][2] = {{0, blank}, {blank + 1, outputs}};
    for (const auto& range : ranges) {
        SIMD
        for (int64_t v = range[0]; v < range[1]; ++v) out[v] = exp_nonpositive(x[v] - shift) * factor;
    }
    out[blank] = plain(f.blank) * scale - n.blank * share;
    int64_t i = 0;
    for (int64_t group = 0; group < g.num_groups; ++group) {
        R count = 0;
        for (; i < g.group_end[group]; ++i) count += token_count[g.grouped[i]];
        out[g.group_label[group]] -= count * share;
    }
}
