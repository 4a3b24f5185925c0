"""The lattice in Triton: the kernels of the loss and its gradients (reference.py has the recursion itself).

A program computes one utterance, or a few short ones, frame by frame: all positions in one block, and a barrier between
frames. Two more kernels, before and after, process all frames at once: softmax statistics, and gradients to the logits.
There are no atomic additions: each number is written by one program, and each sum has a fixed order.

The positions of all utterances are stored in a row: utterance n has `first[n]` … `first[n] + tokens[n]`. So
concatenated targets need no padding.

All numbers are logarithms, relative to the largest logit of each frame. That logit is in every path once, cancels in
all posteriors, and is added to the likelihood at the end. So numbers stay small, and float32 is precise enough.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

# NaN must not be a constant: at each launch Triton checks that constants have not changed, and NaN differs from NaN.
ABSENT = tl.constexpr(float("-inf"))
# Numbers that change from batch to batch. By default Triton compiles a kernel again if one is 1 or a multiple of 16.
_VARYING = ("T", "N", "bypasses", "loops", "num_words")
VARYING_STRIDES = (*_VARYING, "stride_t", "stride_n")  # of kernels that do not read in the order of memory


def inlined(function: Callable[..., Any]) -> Any:
    """Make a function that kernels can call.

    Args:
        function: Operations on Triton's tensors.

    Returns:
        A jit function; for the interpreter the function itself, because a call of a jit function takes it 10 ms.
    """
    compiled = triton.jit(function)
    return compiled if isinstance(compiled, triton.runtime.JITFunction) else function


@inlined
def _log_add(a, b):
    top = tl.maximum(a, b)
    top = tl.where(top == ABSENT, 0.0, top)
    return top + tl.log(tl.exp(a - top) + tl.exp(b - top))


INTERPRETED = not isinstance(_log_add, triton.runtime.JITFunction)


@inlined
def _log_add3(a, b, c):
    top = tl.maximum(tl.maximum(a, b), c)
    top = tl.where(top == ABSENT, 0.0, top)
    return top + tl.log(tl.exp(a - top) + tl.exp(b - top) + tl.exp(c - top))


@inlined
def _log_add4(a, b, c, d):
    top = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    top = tl.where(top == ABSENT, 0.0, top)
    return top + tl.log(tl.exp(a - top) + tl.exp(b - top) + tl.exp(c - top) + tl.exp(d - top))


@triton.jit(do_not_specialize=_VARYING)
def statistics(
    logits, stride_t, stride_n, stride_c, frames_of, top_of, total_of, others_of, T, C, blank,
    DTYPE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """For each frame, (N, T): the largest logit, and relative to it log-sum-exp of all logits and of the non-blank.

    NaN if there is no softmax: a logit is NaN or +inf, or all are −inf.
    """
    n = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    running = t < tl.load(frames_of + n)
    rows = logits + n * stride_n + t * stride_t
    top = tl.full((ROWS,), ABSENT, DTYPE)
    total = tl.zeros((ROWS,), DTYPE)
    for start in range(0, C, COLUMNS):
        v = start + tl.arange(0, COLUMNS).to(tl.int64)
        used = running[:, None] & ((v < C) & (v != blank))[None, :]
        x = tl.load(rows[:, None] + (v * stride_c)[None, :], used, ABSENT).to(DTYPE)
        new = tl.maximum(top, tl.max(x, 1))
        shift = tl.where(new == ABSENT, 0.0, new)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), 1)
        top = new
    silence = tl.load(rows + blank * stride_c, running, 0.0).to(DTYPE)
    largest = tl.maximum(top, silence)
    shift = tl.where(largest == ABSENT, 0.0, largest)
    others = tl.where(top == ABSENT, 0.0, top) - shift + tl.log(total)
    both = _log_add(others, silence - shift)
    lost = (both != both) | (largest == ABSENT)
    at = n * T + t
    tl.store(top_of + at, tl.where(lost, float("nan"), shift), t < T)
    tl.store(total_of + at, tl.where(lost, float("nan"), both), t < T)
    tl.store(others_of + at, tl.where(lost, float("nan"), others), t < T)


@triton.jit(do_not_specialize=_VARYING)
def pack(
    targets, words, starts, first, tokens_of, bypass, bypass_n, bypass_k, bypasses, loop, loop_n, loop_k, loops,
    word, word_n, word_w, num_words, labels, bypass_of, loop_of, word_of, word_start, word_end, readable, N, C, blank,
    WORDS: tl.constexpr, LOOPS_AT_WORDS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the graph by position: the label of the token that leads to it (−1: none), and the weights of arcs into it.

    Weights are (N, …), with strides of 0 if all are equal. `readable` becomes 0 for an utterance with a label out of
    range, or with fewer weights than arcs. `word_start` and `word_end`: where the word that ends here starts, and where
    the word that starts here ends; −1 if there is none.
    """
    n = (tl.program_id(0) * GROUP + tl.arange(0, GROUP)).to(tl.int64)[:, None]
    k = tl.arange(0, BLOCK).to(tl.int64)[None, :]
    tokens = tl.load(tokens_of + n, n < N, -1)
    start, begin = tl.load(starts + n, n < N, 0), tl.load(first + n, n < N, 0)
    inside, inner, place = k <= tokens, (k <= tokens) & (k > 0), begin + k
    label = tl.load(targets + start + k - 1, inner, -1)
    wrong = inner & ((label < 0) | (label >= C) | (label == blank))
    few = inside & ((k > bypasses) | (k >= loops))
    bad = tl.sum((wrong | few).to(tl.int32), 1)[:, None]
    possible = tl.load(readable + n, n < N, 0) != 0
    tl.store(readable + n, (bad == 0) & possible, n < N)
    tl.store(labels + place, tl.where(wrong, -1, label), inside)
    weight = tl.load(bypass + n * bypass_n + (k - 1) * bypass_k, inner & (k <= bypasses), ABSENT)
    tl.store(bypass_of + place, weight, inside)
    weight = tl.load(loop + n * loop_n + k * loop_k, inside & (k < loops), ABSENT)
    if LOOPS_AT_WORDS:
        middle = inner & (k < tokens)
        same = tl.load(words + start + k - 1, middle, 0) == tl.load(words + start + k, middle, 0)
        weight = tl.where(same & middle, ABSENT, weight)
    tl.store(loop_of + place, weight, inside)
    if WORDS:
        tl.store(word_of + place, tl.full((GROUP, BLOCK), ABSENT, word_of.dtype.element_ty), inside)
        tl.store(word_start + place, tl.full((GROUP, BLOCK), -1, tl.int32), inside)
        tl.store(word_end + place, tl.full((GROUP, BLOCK), -1, tl.int32), inside)
        tl.debug_barrier()
        since = tokens * 0
        for u in range(0, tl.max(tokens)):
            this = tl.load(words + start + u, u < tokens, -1)
            before = tl.load(words + start + u - 1, (u > 0) & (u < tokens), -1)
            after = tl.load(words + start + u + 1, u + 1 < tokens, -1)
            since = tl.where((this != before) | (u == 0), u, since)
            ends = (this >= 0) & (after != this)
            which = tl.minimum(this, num_words - 1)  # words on a GPU have not been checked
            price = tl.load(word + n * word_n + which * word_w, ends, ABSENT)
            tl.store(word_of + begin + u + 1, price, ends)
            tl.store(word_start + begin + u + 1, since, ends)
            tl.store(word_end + begin + since, tl.where(ends, u + 1, 0), ends)


@triton.jit(do_not_specialize=VARYING_STRIDES)
def forward(
    logits, stride_t, stride_n, stride_c, top_of, others_of, frames_of, tokens_of, first, readable,
    labels, bypass_of, loop_of, word_of, word_start, alphas, likelihood, T, N, log_others, blank,
    KEEP: tl.constexpr, STARS: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Log-sums of all paths into B, N and S of each position, and the likelihood; both relative to the largest logits.

    Row t of `alphas` holds the states after t frames. If they are not kept, it has two rows that are used in turn.
    """
    n = (tl.program_id(0) * GROUP + tl.arange(0, GROUP)).to(tl.int64)[:, None]
    k = tl.arange(0, BLOCK).to(tl.int64)[None, :]
    width = tl.load(tokens_of + n, n < N, -1) + 1
    begin = tl.load(first + n, n < N, 0)
    good = tl.load(readable + n, n < N, 0) != 0
    frames = tl.where(good, tl.load(frames_of + n, n < N, 0), 0)
    inside, inner = k < width, (k < width) & (k > 0)
    label = tl.load(labels + begin + k, inside, -1).to(tl.int64)
    repeat = inner & (label == tl.load(labels + begin + k - 1, inner, -1))
    outputs = logits + n * stride_n + label * stride_c
    states: tl.constexpr = 3 if STARS else 2
    cells = alphas + begin * (T + 1 if KEEP else 2) * states + k
    nothing = tl.full((GROUP, BLOCK), ABSENT, alphas.dtype.element_ty)
    b, y, s = tl.where(k == 0, 0.0, nothing), nothing, nothing
    tl.store(cells, b, inside)
    tl.store(cells + width, y, inside)
    if STARS:
        tl.store(cells + 2 * width, s, inside)
        star_score = tl.load(log_others)
        loop_weight = tl.load(loop_of + begin + k, inside, ABSENT)
        bypass_weight = tl.load(bypass_of + begin + k, inside, ABSENT)
        if WORDS:
            source = tl.load(word_start + begin + k, inside, -1)
            ends = source >= 0
            word_weight = tl.load(word_of + begin + k, ends, ABSENT)
    for t in range(0, tl.max(frames)):
        tl.debug_barrier()
        running = t < frames
        old = cells + (t if KEEP else t % 2) * states * width
        new = cells + (t + 1 if KEEP else (t + 1) % 2) * states * width
        top = tl.load(top_of + n * T + t, running, 0.0)
        silence = tl.load(logits + t * stride_t + n * stride_n + blank * stride_c, running, 0.0).to(top.dtype) - top
        sound = tl.load(outputs + t * stride_t, inner & running, ABSENT).to(top.dtype) - top
        b_before = tl.load(old - 1, inner & running, ABSENT)
        y_before = tl.load(old + width - 1, inner & running, ABSENT)
        changed = tl.where(repeat, ABSENT, y_before)
        if STARS:
            star = tl.load(others_of + n * T + t, running, 0.0) - star_score
            s_before = tl.load(old + 2 * width - 1, inner & running, ABSENT)
            to_b = _log_add3(b, y, s)
            to_y = _log_add4(y, b_before, s_before, changed)
            loop = loop_weight + _log_add(b, y)
            bypass = bypass_weight + _log_add(b_before, y_before)
            if WORDS:
                from_word = old + source - k
                b_word = tl.load(from_word, ends & running, ABSENT)
                y_word = tl.load(from_word + width, ends & running, ABSENT)
                to_s = _log_add4(s, loop, bypass, word_weight + _log_add(b_word, y_word))
            else:
                to_s = _log_add3(s, loop, bypass)
            s = tl.where(running, star + to_s, s)
            tl.store(new + 2 * width, s, inside & running)
        else:
            to_b = _log_add(b, y)
            to_y = _log_add3(y, b_before, changed)
        b = tl.where(running, silence + to_b, b)
        y = tl.where(running, sound + to_y, y)
        tl.store(new, b, inside & running)
        tl.store(new + width, y, inside & running)
    total = tl.sum(tl.where(k + 1 == width, _log_add3(b, y, s), 0.0), 1)[:, None]
    tl.store(likelihood + n, tl.where(good, total, float("nan")), n < N)


@triton.jit(do_not_specialize=VARYING_STRIDES)
def backward(
    logits, stride_t, stride_n, stride_c, top_of, others_of, frames_of, tokens_of, first, words, starts,
    labels, bypass_of, loop_of, word_of, word_start, word_end, alphas, likelihood, scratch,
    occupancy, silences, stars, bypass_count, bypasses, loop_count, loops, word_count, num_words,
    T, N, log_others, blank, STARS: tl.constexpr, WORDS: tl.constexpr, OCCUPANCY: tl.constexpr,
    COUNT_BYPASS: tl.constexpr, COUNT_LOOP: tl.constexpr, COUNT_WORD: tl.constexpr,
    GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Backward pass. For each frame: occupancies of each token, of blank and of ★; for each arc: its expected count.

    `to_b`, `to_y` and `to_s` are log-sums of all paths that enter the state with this frame and continue to the end.
    Neighbours read the latter two from `scratch`, which holds two frames in turn. COUNT_…: 2 for the count of each arc,
    1 for one count of all arcs of an utterance, 0 for none.
    """
    n = (tl.program_id(0) * GROUP + tl.arange(0, GROUP)).to(tl.int64)[:, None]
    k = tl.arange(0, BLOCK).to(tl.int64)[None, :]
    width = tl.load(tokens_of + n, n < N, -1) + 1
    begin = tl.load(first + n, n < N, 0)
    total = tl.load(likelihood + n, n < N, ABSENT)
    frames = tl.where(total > ABSENT, tl.load(frames_of + n, n < N, 0), 0)  # none if it is NaN
    total = tl.where(total > ABSENT, total, 0.0)
    inside, inner, follows = k < width, (k < width) & (k > 0), k + 1 < width
    label = tl.load(labels + begin + k, inside, -1).to(tl.int64)
    repeat = follows & (label == tl.load(labels + begin + k + 1, follows, -1))
    outputs = logits + n * stride_n + label * stride_c
    states: tl.constexpr = 3 if STARS else 2
    cells = alphas + begin * (T + 1) * states + k
    ahead = scratch + begin * 2 * (states - 1) + k
    nothing = tl.full((GROUP, BLOCK), ABSENT, alphas.dtype.element_ty)
    to_b, to_y, to_s = nothing, nothing, nothing
    bypass_sum = tl.zeros((GROUP, BLOCK), nothing.dtype)
    loop_sum, word_sum = bypass_sum, bypass_sum
    if STARS:
        star_score = tl.load(log_others)
        loop_weight = tl.load(loop_of + begin + k, inside, ABSENT)
        bypass_weight = tl.load(bypass_of + begin + k, inside, ABSENT)
        next_bypass = tl.load(bypass_of + begin + k + 1, follows, ABSENT)
        if WORDS:
            source = tl.load(word_start + begin + k, inside, -1)
            ends = source >= 0
            word_weight = tl.load(word_of + begin + k, ends, ABSENT)
            end = tl.load(word_end + begin + k, inside, -1)
            next_word = tl.load(word_of + begin + end, end >= 0, ABSENT)
    longest = tl.max(frames)
    for back in range(0, longest):
        t = longest - 1 - back
        running, later = t < frames, t + 1 < frames
        after = ahead + ((t + 1) % 2) * (states - 1) * width
        here = ahead + (t % 2) * (states - 1) * width
        old = cells + t * states * width
        now = old + states * width
        top = tl.load(top_of + n * T + t, running, 0.0)
        silence = tl.load(logits + t * stride_t + n * stride_n + blank * stride_c, running, 0.0).to(top.dtype) - top
        sound = tl.load(outputs + t * stride_t, inner & running, ABSENT).to(top.dtype) - top
        final = tl.where((k + 1 == width) & (t + 1 == frames), 0.0, nothing)
        next_y = tl.load(after + 1, follows & later, ABSENT)
        leave = to_b
        if STARS:
            star = tl.load(others_of + n * T + t, running, 0.0) - star_score
            next_s = tl.load(after + width + 1, follows & later, ABSENT)
            s = _log_add4(to_b, to_s, next_y, final)
            leave = _log_add3(to_b, loop_weight + to_s, next_bypass + next_s)
            if WORDS:
                word_s = tl.load(after + width + end - k, (end >= 0) & later, ABSENT)
                leave = _log_add(leave, next_word + word_s)
        b = _log_add3(leave, next_y, final)
        y = _log_add4(leave, to_y, tl.where(repeat, ABSENT, next_y), final)
        to_b, to_y = silence + b, sound + y
        tl.store(here, to_y, inside & running)
        if STARS:
            to_s = star + s
            tl.store(here + width, to_s, inside & running)
        # occupancies add up to 1, except for the rounding of the likelihood, which is divided out
        in_b = tl.exp(tl.load(now, inside & running, ABSENT) + b - total)
        in_y = tl.exp(tl.load(now + width, inside & running, ABSENT) + y - total)
        whole = in_b + in_y
        if STARS:
            in_s = tl.exp(tl.load(now + 2 * width, inside & running, ABSENT) + s - total)
            whole += in_s
        share = 1.0 / tl.where(running, tl.sum(whole, 1)[:, None], 1.0)
        if OCCUPANCY:
            tl.store(occupancy + begin * T + t * width + k, in_y * share, inside & running)
            tl.store(silences + n * T + t, tl.sum(in_b, 1)[:, None] * share, running)
            if STARS:
                tl.store(stars + n * T + t, tl.sum(in_s, 1)[:, None] * share, running)
        if COUNT_LOOP:
            b_from = tl.load(old, inside & running, ABSENT)
            y_from = tl.load(old + width, inside & running, ABSENT)
            loop_sum += tl.exp(_log_add(b_from, y_from) + loop_weight + to_s - total) * share
        if COUNT_BYPASS:
            b_from = tl.load(old - 1, inner & running, ABSENT)
            y_from = tl.load(old + width - 1, inner & running, ABSENT)
            bypass_sum += tl.exp(_log_add(b_from, y_from) + bypass_weight + to_s - total) * share
        if COUNT_WORD:
            b_from = tl.load(old + source - k, ends & running, ABSENT)
            y_from = tl.load(old + source - k + width, ends & running, ABSENT)
            word_sum += tl.exp(_log_add(b_from, y_from) + word_weight + to_s - total) * share
        tl.debug_barrier()
    if COUNT_LOOP == 2:
        tl.store(loop_count + n * loops + k, loop_sum, inside & (k < loops))
    elif COUNT_LOOP:
        tl.store(loop_count + n, tl.sum(tl.where(inside, loop_sum, 0.0), 1)[:, None], n < N)
    if COUNT_BYPASS == 2:
        tl.store(bypass_count + n * bypasses + k - 1, bypass_sum, inner & (k <= bypasses))
    elif COUNT_BYPASS:
        tl.store(bypass_count + n, tl.sum(tl.where(inner, bypass_sum, 0.0), 1)[:, None], n < N)
    if COUNT_WORD == 1:
        tl.store(word_count + n, tl.sum(tl.where(ends, word_sum, 0.0), 1)[:, None], n < N)
    elif COUNT_WORD:
        which = tl.load(words + tl.load(starts + n, n < N, 0) + k - 1, ends, -1)
        tl.store(word_count + n * num_words + which, word_sum, (which >= 0) & (which < num_words))


@triton.jit(do_not_specialize=_VARYING)
def gradient(
    logits, stride_t, stride_n, stride_c, top_of, total_of, others_of, frames_of, tokens_of, first, starts,
    likelihood, factor, occupancy, silences, stars, order, segments, result, result_t, result_n, T, C, blank,
    STARS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradient of each logit: factor · (P(v) − occupancy of v − occupancy of ★ · share of v in ★); blank has no ★ term.

    A program computes a tile of frames × outputs. The tokens of output v are `order[segments[v] : segments[v + 1]]`.
    """
    n = tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    v = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)
    total, scale = tl.load(likelihood + n), tl.load(factor + n)
    frames = tl.load(frames_of + n)
    running, used = (
        t < frames,
        t < tl.where(total > ABSENT, frames, 0),
    )  # not used: no path, or NaN
    valid = v < C
    tile = running[:, None] & valid[None, :]
    x = tl.load(logits + n * stride_n + (t * stride_t)[:, None] + (v * stride_c)[None, :], tile, ABSENT)
    at = n * T + t
    x = x.to(total.dtype) - tl.load(top_of + at, running, 0.0)[:, None]
    width = tl.load(tokens_of + n) + 1
    share = occupancy + tl.load(first + n) * T + t * width - tl.load(starts + n) + 1
    begin = tl.load(segments + n * (C + 1) + v, valid, 0)
    count = tl.load(segments + n * (C + 1) + v + 1, valid, 0) - begin
    found = tl.zeros((ROWS, COLUMNS), total.dtype)
    for i in range(0, tl.max(count, 0)):
        u = tl.load(order + begin + i, i < count, 0)
        found += tl.load(share[:, None] + u[None, :], used[:, None] & (i < count)[None, :], 0.0)
    found = tl.where((v == blank)[None, :], tl.load(silences + at, used, 0.0)[:, None], found)
    if STARS:
        others = tl.load(others_of + at, running, 0.0)
        others = tl.where(others == ABSENT, 0.0, others)  # all non-blank logits are −inf: ★ has no outputs
        heard = tl.load(stars + at, used, 0.0)[:, None] * tl.exp(x - others[:, None])
        found += tl.where((v == blank)[None, :], 0.0, heard)
    wanted = (tl.exp(x - tl.load(total_of + at, running, 0.0)[:, None]) - found) * scale
    wanted = tl.where(total == ABSENT, 0.0, wanted)
    wanted = tl.where(scale == 0, 0.0, tl.where(running[:, None], tl.where(total != total, float("nan"), wanted), 0.0))
    place = result + n * result_n + (t * result_t)[:, None] + v[None, :]
    tl.store(place, wanted, (t < T)[:, None] & valid[None, :])
