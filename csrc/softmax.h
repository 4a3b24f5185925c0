// From a frame's logits to its emissions, and back to its gradient. Included by kernel.cpp inside its namespace.

// Largest non-blank logit and the sum of e^(logit − largest): taken apart from blank, so that ★ keeps its value and
// its gradient where P(blank) rounds to 1. False if a logit is NaN or +inf, or all of them are −inf.
template <class R>
static void scan(const R* x, int64_t count, R& max, bool& bad) {
    using V = Vector<R>;
    constexpr R infinity = std::numeric_limits<R>::infinity();
    int64_t v = 0;
    if (count >= kWidth<R>) {
        V m = splat<V>(max);
        Int<V> finite = ~Int<V>{};
        for (; v + kWidth<R> <= count; v += kWidth<R>) {
            const V y = load<V>(x + v);
            m = larger(y, m);
            finite &= y < infinity ? ~Int<V>{} : Int<V>{};  // false for NaN too
        }
        R lanes[kWidth<R>];
        Int<R> flags[kWidth<R>];
        store(lanes, m);
        store(flags, finite);
        for (int64_t i = 0; i < kWidth<R>; ++i) {
            max = larger(max, lanes[i]);
            bad |= flags[i] == 0;
        }
    }
    for (; v < count; ++v) {
        max = larger(x[v], max);
        bad |= !(x[v] < infinity);
    }
}

template <class R>
static R sum_exp(const R* x, int64_t count, R max) {
    using V = Vector<R>;
    V sums{};
    int64_t v = 0;
    for (; v + kWidth<R> <= count; v += kWidth<R>) sums += exp_nonpositive(load<V>(x + v) - max);
    R sum = sum_of_lanes<R>(sums);
    for (; v < count; ++v) sum += exp_nonpositive(x[v] - max);
    return sum;
}

template <class R>
static bool row_stats(const R* x, int64_t outputs, int64_t blank, R& max, R& sum) {
    constexpr R infinity = std::numeric_limits<R>::infinity();
    bool bad = !(x[blank] < infinity);
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
    R top;
    Scaled<R> inverse_total;  // P(v) = e^(x_v − top) · inverse_total
    R non_blank;              // 1 − P(blank), not by subtraction
    Scaled<R> blank, star;
};

template <class R>
static FrameScores<R> frame_scores(R blank_logit, R max, R sum, int64_t outputs) {
    FrameScores<R> f;
    f.top = larger(max, blank_logit);
    const R others = sum * exp_nonpositive(max - f.top);
    const R inverse = R(1) / (others + exp_nonpositive(blank_logit - f.top));
    f.inverse_total = normalised(Scaled<R>{inverse, 0});
    f.non_blank = others * inverse;
    f.blank = normalised(scaled_exp(blank_logit - f.top) * f.inverse_total);
    f.star = {R(1), Format<R>::zero};
    if (sum > 0) {
        const R mean = sum * inverse / static_cast<R>(outputs - 1);
        f.star = normalised(scaled_exp(max - f.top) * Scaled<R>{mean, 0});
    }
    return f;
}

template <class R>
static void token_emissions(const R* x, const Graph<R>& g, const FrameScores<R>& f, int64_t end, Numbers<R> out) {
    const Scaled<Vector<R>> inverse_total = every_lane(f.inverse_total);
    for (int64_t k = 0; k < end; k += kWidth<R>) {
        const Vector<R> y = gather<R>(x, g.label + k);
        out.set_from(k, scaled_exp(y - f.top) * inverse_total);
    }
    out.clear(0, 1);
    out.clear(g.tokens + 1, g.positions);
}

// Expected number of times that a frame is spent in each label; `total` of them is one frame.
template <class R>
struct Occupancy {
    R blank, star, total;
};

// grad_v = P_v − γ_v − γ_★ q_v, q the softmax over the non-blank outputs; with P_v = q_v (1 − P_blank) that takes one
// exponential an output.
template <class R>
static void gradient_row_of(const R* x, const Graph<R>& g, int64_t outputs, int64_t blank, const FrameScores<R>& f,
                            R max, R sum, const Occupancy<R>& n, const Band& band, const R* token_count, R scale, R* out) {
    const R share = scale / n.total;
    const R factor = sum > 0 ? (f.non_blank * scale - n.star * share) / sum : R(0);
    const R shift = sum > 0 ? max : R(0);
    int64_t v = 0;
    for (; v + kWidth<R> <= outputs; v += kWidth<R>)  // the blank's is overwritten
        store(out + v, exp_nonpositive(load<Vector<R>>(x + v) - shift) * factor);
    for (; v < outputs; ++v) out[v] = v == blank ? R(0) : exp_nonpositive(x[v] - shift) * factor;
    out[blank] = plain(f.blank) * scale - n.blank * share;
    const int64_t last = band.end <= g.tokens ? band.end - 1 : g.tokens;
    for (int64_t k = band.begin > 0 ? band.begin : 1; k <= last; ++k) out[g.label[k]] -= token_count[k] * share;
}
