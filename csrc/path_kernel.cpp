// The best path's recursion over a block of positions and some frames: the lattice of recursion.h with max instead of sum,
// in the log domain and in double.
//
// Of paths that tie, the one with the most token arcs is taken, then the one with the fewest wildcards; of those that are
// equal in this too, the first in a fixed order: token, then blank, then ★.
//
// Compiled once per instruction set, as kernel.cpp is.
#include "path.h"
#include "vectors.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace wildctc {
namespace WILDCTC_ISA {
namespace {

using Many = Vector<double>;
constexpr int64_t kWide = kWidth<double>;

WILDCTC_INLINE bool any(bool lane) { return lane; }
WILDCTC_INLINE double slack(double score) { return kRounding * (1 + (score < 0 ? -score : score)); }
#if defined(WILDCTC_VECTOR_BYTES)
WILDCTC_INLINE bool any(Int<Many> lanes) {
#if defined(__AVX512DQ__) && WILDCTC_VECTOR_BYTES == 64
    return _mm512_movepi64_mask(same_bits<__m512i>(lanes)) != 0;
#elif defined(__AVX__) && WILDCTC_VECTOR_BYTES == 32
    return _mm256_movemask_pd(same_bits<__m256d>(lanes)) != 0;
#else
    int64_t found = 0;
    for (int64_t i = 0; i < kWide; ++i) found |= lanes[i];
    return found != 0;
#endif
}
WILDCTC_INLINE Many slack(Many score) { return kRounding * (1 + larger(score, -score)); }
#endif

template <class V>
struct Found {
    V score;
    Int<V> arcs, code;
};

// Finds the best of several ways into a state. Each is offered with the weight of its arc, and what that adds to `arcs`.
template <class V>
class Fair {
  public:
    void offer(V from, Int<V> arcs, Int<V> code) {
        const V near = slack(from);
        const auto better = ((from - near > best_.score) | ((from + near >= best_.score) & (arcs > best_.arcs)));
        best_ = {better ? from : best_.score, better ? arcs : best_.arcs, better ? code : best_.code};
    }
    const Found<V>& best() const { return best_; }

  private:
    Found<V> best_{splat<V>(kNone), Int<V>{}, Int<V>{}};
};

// The same, but faster; not valid where another way ties with the best (`tied`), which is rare.
template <class V>
class Quick {
  public:
    void offer(V from, Int<V> arcs, Int<V> code) {
        const V less = from < best_.score ? from : best_.score;
        next_ = larger(next_, less);
        const auto better = from > best_.score;
        best_ = {better ? from : best_.score, better ? arcs : best_.arcs, better ? code : best_.code};
    }
    auto tied() const { return next_ + slack(best_.score) >= best_.score; }  // not for −inf
    const Found<V>& best() const { return best_; }

  private:
    Found<V> best_{splat<V>(kNone), Int<V>{}, Int<V>{}};
    V next_ = splat<V>(kNone);
};

// The best way into a state; `ways` offers each of them.
template <class V, class Ways>
WILDCTC_INLINE Found<V> best_of(const Ways& ways) {
    Quick<V> quick;
    ways(quick);
    const auto tied = quick.tied();
    Found<V> best = quick.best();
    if (any(tied)) {
        Fair<V> fair;
        ways(fair);
        const Found<V>& f = fair.best();
        best = {tied ? f.score : best.score, tied ? f.arcs : best.arcs, tied ? f.code : best.code};
    }
    return best;
}

enum class Arcs { none, tokens, words };  // plain CTC; wildcards without word arcs; wildcards with them

// The better of blank and token at each position, and what comes through words to their ends.
template <Arcs A, bool Codes>
void join(const PathBlock& b, const PathColumn& from, const PathEdge& left) {
    using I = Int<Many>;
    for (int64_t k = 0; k < b.size; k += kWide) {
        const auto best = best_of<Many>([&](auto& ways) {
            ways.offer(load<Many>(from.of[kToken].score + k), load<I>(from.of[kToken].arcs + k), splat<I>(int64_t{kToken}));
            ways.offer(load<Many>(from.of[kBlank].score + k), load<I>(from.of[kBlank].arcs + k), splat<I>(int64_t{kBlank}));
        });
        store(b.either.score + k, best.score);
        store(b.either.arcs + k, best.arcs);
        if constexpr (Codes) store(b.either_code + k, best.code);
    }
    if constexpr (A != Arcs::words) return;
    for (int64_t i = 0; i < b.num_words; ++i) {
        const int64_t start = b.words[i].start, end = b.words[i].end;
        b.through.set(end, start < 0 ? left.word : b.either[start]);
        if constexpr (Codes) b.through_code[end] = start < 0 ? left.word_code : b.either_code[start];
    }
}

template <bool Codes>
PathEdge right_edge(const PathBlock& b, const PathColumn& from, const PathEdge& left) {
    const int64_t last = b.size - 1;
    PathEdge edge;
    edge.blank = from.of[kBlank][last];
    edge.star = from.of[kStar][last];
    edge.either = b.either[last];
    edge.word = left.word;
    edge.word_code = left.word_code;
    if constexpr (Codes) edge.either_code = static_cast<int8_t>(b.either_code[last]);
    if (b.open >= 0 && b.open < b.size) {
        edge.word = b.either[b.open];
        if constexpr (Codes) edge.word_code = static_cast<int8_t>(b.either_code[b.open]);
    }
    return edge;
}

WILDCTC_INLINE void store_codes(int8_t* to, Int<Many> codes) {
    int64_t each[kWide];
    store(each, codes);
    for (int64_t i = 0; i < kWide; ++i) to[i] = static_cast<int8_t>(each[i]);
}

WILDCTC_INLINE void keep(const PathArray& to, int64_t k, const Found<Many>& best, double emission) {
    store(to.score + k, best.score + splat<Many>(emission));
    store(to.arcs + k, best.arcs);
}

// A token that repeats the one before is entered from blank or ★ only.
template <Arcs A, bool Codes>
void enter_repeats(const PathBlock& b, const PathFrame& f, const PathColumn& from, const PathColumn& to, const PathEdge& left) {
    for (int64_t i = 0; i < b.num_repeats; ++i) {
        const int64_t k = b.repeats[i];
        const Path stay = from.of[kToken][k], blank = k > 0 ? from.of[kBlank][k - 1] : left.blank;
        const auto best = best_of<double>([&](auto& ways) {
            ways.offer(stay.score, stay.arcs, pack(kToken, kNoArc, false));
            ways.offer(blank.score, blank.arcs + kTokenArc, pack(kBlank, kNoArc, true));
            if constexpr (A != Arcs::none) {
                const Path star = k > 0 ? from.of[kStar][k - 1] : left.star;
                ways.offer(star.score, star.arcs + kTokenArc, pack(kStar, kNoArc, true));
            }
        });
        to.of[kToken].set(k, {best.score + f.row[b.label[k]], best.arcs});
        if constexpr (Codes) f.codes[kToken * f.width + k] = static_cast<int8_t>(best.code);
    }
}

template <Arcs A, bool Codes>
void advance(const PathBlock& b, const PathFrame& f, const PathColumn& from, const PathColumn& to, const PathEdge& left) {
    using I = Int<Many>;
    const I token_arc = splat<I>(kTokenArc), wildcard = splat<I>(int64_t{-1});
    const auto code = [](int state, int arc, bool moved) { return splat<I>(int64_t{pack(state, arc, moved)}); };
    Many score_before = splat<Many>(left.either.score), star_before = splat<Many>(left.star.score);
    I arcs_before = splat<I>(left.either.arcs), star_arcs_before = splat<I>(left.star.arcs);
    I code_before = splat<I>(int64_t{left.either_code});
    const auto up = [](auto before, auto x) { return same_bits<decltype(x)>(moved_up(same_bits<Many>(before), same_bits<Many>(x))); };
    for (int64_t k = 0; k < b.size; k += kWide) {
        const Many score = load<Many>(b.either.score + k), token = load<Many>(from.of[kToken].score + k);
        const I arcs = load<I>(b.either.arcs + k), token_arcs = load<I>(from.of[kToken].arcs + k);
        I how{};
        if constexpr (Codes) how = load<I>(b.either_code + k);
        const Many earlier = up(score_before, score);
        const I earlier_arcs = up(arcs_before, arcs), earlier_how = Codes ? up(code_before, how) : I{};
        Many star{}, star_earlier{};
        I star_arcs{}, star_earlier_arcs{};
        if constexpr (A != Arcs::none) {
            star = load<Many>(from.of[kStar].score + k);
            star_arcs = load<I>(from.of[kStar].arcs + k);
            star_earlier = up(star_before, star);
            star_earlier_arcs = up(star_arcs_before, star_arcs);
            star_before = star;
            star_arcs_before = star_arcs;
        }
        score_before = score;
        arcs_before = arcs;
        code_before = how;

        const auto to_blank = best_of<Many>([&](auto& ways) {
            ways.offer(score, arcs, how);
            if constexpr (A != Arcs::none) ways.offer(star, star_arcs, code(kStar, kNoArc, false));
        });
        keep(to.of[kBlank], k, to_blank, f.blank);
        const auto to_token = best_of<Many>([&](auto& ways) {
            ways.offer(token, token_arcs, code(kToken, kNoArc, false));
            ways.offer(earlier, earlier_arcs + token_arc, earlier_how + code(0, kNoArc, true));
            if constexpr (A != Arcs::none) ways.offer(star_earlier, star_earlier_arcs + token_arc, code(kStar, kNoArc, true));
        });
        store(to.of[kToken].score + k, to_token.score + gather<Many>(f.row, b.label + k));
        store(to.of[kToken].arcs + k, to_token.arcs);
        if constexpr (Codes) {
            store_codes(f.codes + kBlank * f.width + k, to_blank.code);
            store_codes(f.codes + kToken * f.width + k, to_token.code);
        }
        if constexpr (A != Arcs::none) {
            const auto to_star = best_of<Many>([&](auto& ways) {
                ways.offer(star, star_arcs, code(kStar, kNoArc, false));
                ways.offer(score + load<Many>(b.self_loop + k), arcs + wildcard, how + code(0, kSelfLoop, false));
                ways.offer(earlier + load<Many>(b.bypass + k), earlier_arcs + wildcard, earlier_how + code(0, kBypass, true));
                if constexpr (A == Arcs::words) {
                    I through_how{};
                    if constexpr (Codes) through_how = load<I>(b.through_code + k);
                    ways.offer(load<Many>(b.through.score + k) + load<Many>(b.word + k), load<I>(b.through.arcs + k) + wildcard,
                               through_how + code(0, kWordBypass, true));
                }
            });
            keep(to.of[kStar], k, to_star, f.star);
            if constexpr (Codes) store_codes(f.codes + kStar * f.width + k, to_star.code);
        }
    }
    enter_repeats<A, Codes>(b, f, from, to, left);
}

template <Arcs A, bool Codes>
void run(const PathBlock& b) {
    PathColumn from = b.now;
    for (int64_t i = 0; i < b.frames; ++i) {
        const PathColumn to = b.scratch[i % 2];
        const PathEdge left = b.edge[i];
        join<A, Codes>(b, from, left);
        b.edge[i] = right_edge<Codes>(b, from, left);
        advance<A, Codes>(b, b.frame[i], from, to, left);
        from = to;
    }
    for (int state = 0; state < (b.wildcards ? 3 : 2); ++state) {
        std::memcpy(b.now.of[state].score, from.of[state].score, static_cast<size_t>(b.size) * sizeof(double));
        std::memcpy(b.now.of[state].arcs, from.of[state].arcs, static_cast<size_t>(b.size) * sizeof(int64_t));
    }
}

template <Arcs A>
void run_with(const PathBlock& b) {
    return b.frame->codes != nullptr ? run<A, true>(b) : run<A, false>(b);
}

}  // namespace

void advance_paths(const PathBlock& b) {
    if (!b.wildcards) return run_with<Arcs::none>(b);
    return b.word_arcs ? run_with<Arcs::words>(b) : run_with<Arcs::tokens>(b);
}

}  // namespace WILDCTC_ISA
}  // namespace wildctc
