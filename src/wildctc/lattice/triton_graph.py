"""What the recursion reads, in Triton: the graphs by position, and from the logits U + 2 emissions for each frame.

The positions of all utterances are stored in a row: utterance n has `first[n]` … `first[n] + tokens[n]`. So
concatenated targets need no padding. Emissions of tokens are stored likewise, frame by frame: utterance n has those of
frame t from `first[n] · T + t · (tokens[n] + 1)` on; that of position 0 is −inf.
"""

import triton
import triton.language as tl

from wildctc.lattice.triton_scaled import ABSENT, exp_of, inlined, zero_of

# Numbers that change from batch to batch. By default Triton compiles a kernel again if one is 1 or a multiple of 16.
VARYING = ("T", "N", "P", "bypasses", "loops", "num_words", "marks", "widest", "segments", "tiles")


@triton.jit
def _later(a, b):
    return tl.maximum(a, b)


@inlined
def _store_weight(arcs_m, arcs_e, at, weight, mask, SCALED: tl.constexpr):
    """The logarithm, for the best path; or the weight itself, computed in float64 because it may be very large."""
    if SCALED:
        m, e = exp_of(weight.to(tl.float64))
        tl.store(arcs_m + at, m.to(arcs_m.dtype.element_ty), mask)
        least = zero_of(tl.zeros((1,), arcs_m.dtype.element_ty))
        tl.store(arcs_e + at, tl.maximum(e, least).to(arcs_e.dtype.element_ty), mask)
    else:
        tl.store(arcs_m + at, weight.to(arcs_m.dtype.element_ty), mask)


@triton.jit(do_not_specialize=VARYING)
def pack(
    targets, words, starts, first, tokens_of, bypass, bypass_n, bypass_k, bypasses, loop, loop_n, loop_k, loops,
    word, word_n, word_w, num_words, labels, arcs_m, arcs_e, word_start, word_end, readable, P, N, C, blank,
    WORDS: tl.constexpr, LOOPS_AT_WORDS: tl.constexpr, SCALED: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Store the graph by position: the label of the token that leads to it (−1: none), and the weights of arcs into it.

    Weights are (N, …), with strides of 0 if all are equal; they are stored as (3, P): bypass, self-loop, word bypass.
    `readable` becomes 0 for an utterance with a label out of range, or with fewer weights than arcs. `word_start` and
    `word_end`: where the word that ends here starts, and where the word that starts here ends; −1 if there is none.
    `word_end` holds −1 everywhere when the kernel starts. A program writes only what belongs to its utterances, and
    reads nothing that it wrote.
    """
    n = (tl.program_id(0) * GROUP + tl.arange(0, GROUP)).to(tl.int64)[:, None]
    tokens = tl.load(tokens_of + n, n < N, -1)
    start, begin = tl.load(starts + n, n < N, 0), tl.load(first + n, n < N, 0)
    bad = tl.zeros((GROUP, 1), tl.int32)
    since = tl.zeros((GROUP, 1), tl.int64)  # where the word of the tile's first token starts
    for tile in range(0, tl.max(tokens) + 1, TILE):
        k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
        inside, inner, place = k <= tokens, (k <= tokens) & (k > 0), begin + k
        label = tl.load(targets + start + k - 1, inner, -1)
        wrong = inner & ((label < 0) | (label >= C) | (label == blank))
        few = inside & ((k > bypasses) | (k >= loops))
        bad += tl.sum((wrong | few).to(tl.int32), 1)[:, None]
        tl.store(labels + place, tl.where(wrong, -1, label).to(tl.int32), inside)
        weight = tl.load(bypass + n * bypass_n + (k - 1) * bypass_k, inner & (k <= bypasses), ABSENT)
        _store_weight(arcs_m, arcs_e, place, weight, inside, SCALED)
        weight = tl.load(loop + n * loop_n + k * loop_k, inside & (k < loops), ABSENT)
        if LOOPS_AT_WORDS:
            middle = inner & (k < tokens)
            same = tl.load(words + start + k - 1, middle, 0) == tl.load(words + start + k, middle, 0)
            weight = tl.where(same & middle, ABSENT, weight)
        _store_weight(arcs_m, arcs_e, place + P, weight, inside, SCALED)
        if WORDS:
            this = tl.load(words + start + k - 1, inner, -1)
            before = tl.load(words + start + k - 2, inner & (k > 1), -1)
            after = tl.load(words + start + k, inner & (k < tokens), -1)
            opens = inner & ((this != before) | (k == 1))
            origin = tl.maximum(tl.associative_scan(tl.where(opens, k - 1, -1), 1, _later), since)
            since = tl.max(origin, 1)[:, None]
            ends = inner & (this >= 0) & (after != this)
            which = tl.minimum(this, num_words - 1)  # words on a GPU have not been checked
            weight = tl.load(word + n * word_n + which * word_w, ends, ABSENT)
            _store_weight(arcs_m, arcs_e, place + 2 * P, weight, inside, SCALED)
            tl.store(word_start + place, tl.where(ends, origin, -1).to(tl.int32), inside)
            tl.store(word_end + begin + origin, k.to(tl.int32), ends)
    possible = tl.load(readable + n, n < N, 0) != 0
    tl.store(readable + n, ((bad == 0) & possible).to(tl.int32), n < N)


@triton.jit(do_not_specialize=VARYING)
def emissions(
    logits, stride_t, stride_n, stride_c, blank_at, frames_of, tokens_of, first, labels, top_of, total_of, others_of,
    silence_of, sounds, T, C, tiles, blank,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Softmax statistics of each frame, (N, T), and the logits of the blank and of each token, less the largest.

    Statistics: the largest logit, and relative to it log-sum-exp of all logits and of the non-blank; NaN if there is no
    softmax: a logit is NaN or +inf, or all are −inf. A program computes a few frames of one utterance.
    """
    n = (tl.program_id(0) // tiles).to(tl.int64)
    t = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    running = t < tl.load(frames_of + n)
    rows = logits + n * stride_n + t * stride_t
    dtype = top_of.dtype.element_ty
    top = tl.full((ROWS,), ABSENT, dtype)
    total = tl.zeros((ROWS,), dtype)
    for start in range(0, C, COLUMNS):
        v = start + tl.arange(0, COLUMNS).to(tl.int64)
        used = running[:, None] & ((v < C) & (v != blank))[None, :]
        x = tl.load(rows[:, None] + (v * stride_c)[None, :], used, ABSENT).to(dtype)
        new = tl.maximum(top, tl.max(x, 1))
        shift = tl.where(new == ABSENT, 0.0, new)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), 1)
        top = new
    silence = tl.load(rows + blank_at, running, 0.0).to(dtype)
    largest = tl.maximum(top, silence)
    shift = tl.where(largest == ABSENT, 0.0, largest)
    others = tl.where(top == ABSENT, 0.0, top) - shift + tl.log(total)
    high = tl.maximum(others, silence - shift)
    high = tl.where(high == ABSENT, 0.0, high)
    both = high + tl.log(tl.exp(others - high) + tl.exp(silence - shift - high))
    lost = (both != both) | (largest == ABSENT)
    at = n * T + t
    tl.store(top_of + at, tl.where(lost, float("nan"), shift), t < T)
    tl.store(total_of + at, tl.where(lost, float("nan"), both), t < T)
    tl.store(others_of + at, tl.where(lost, float("nan"), others), t < T)
    tl.store(silence_of + at, silence - shift, t < T)
    if TOKENS:
        width = tl.load(tokens_of + n) + 1
        begin = tl.load(first + n)
        out = sounds + begin * T + t * width
        for start in range(0, width, PLACES):
            k = start + tl.arange(0, PLACES).to(tl.int64)
            label = tl.load(labels + begin + k, k < width, -1).to(tl.int64)
            used = running[:, None] & (label >= 0)[None, :]
            x = tl.load(rows[:, None] + (label * stride_c)[None, :], used, ABSENT).to(dtype)
            tl.store(out[:, None] + k[None, :], x - shift[:, None], running[:, None] & (k < width)[None, :])
