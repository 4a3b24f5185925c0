"""The best path in Triton: the forward pass with max for sum, a byte per cell that remembers the choice, and the trace.

In float64, as the other backends' best paths are. Candidates stand in the reference's order, and of equals the first is
taken: ties go to the token arc.
"""

import triton
import triton.language as tl

from wildctc.lattice.triton_kernel import ABSENT, VARYING_STRIDES, inlined


@inlined
def better(best, choice, candidate, number):
    """The candidate, if it is larger. A NaN that stands first stays."""
    more = candidate > best
    return tl.where(more, candidate, best), tl.where(more, number, choice)


@triton.jit(do_not_specialize=VARYING_STRIDES)
def best_path(
    logits, stride_t, stride_n, stride_c, top_of, total_of, others_of, frames_of, tokens_of, first, readable,
    labels, bypass_of, loop_of, word_of, word_start, cells, choices, score, position, state, arc,
    T, N, log_others, blank, STARS: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Score, and of each frame position, state (0 blank, 1 token, 2 ★) and arc (1 bypass, 2 self-loop, 3 word bypass).

    A choice has two bits for B, two for N and three for S: the number of the candidate, in the order used here. `cells`
    holds two frames in turn.
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
    cells += begin * 6 + k
    nothing = tl.full((GROUP, BLOCK), ABSENT, tl.float64)
    none = tl.zeros((GROUP, BLOCK), tl.int32)
    b, y, s = tl.where(k == 0, 0.0, nothing), nothing, nothing
    tl.store(cells, b, inside)
    tl.store(cells + width, y, inside)
    tl.store(cells + 2 * width, s, inside)
    if STARS:
        star_score = tl.load(log_others)
        loop = tl.load(loop_of + begin + k, inside, ABSENT)
        bypass = tl.load(bypass_of + begin + k, inside, ABSENT)
        if WORDS:
            source = tl.load(word_start + begin + k, inside, -1)
            ends = source >= 0
            word = tl.load(word_of + begin + k, ends, ABSENT)
    for t in range(0, tl.max(frames)):
        tl.debug_barrier()
        running = t < frames
        old = cells + (t % 2) * 3 * width
        new = cells + ((t + 1) % 2) * 3 * width
        total = tl.load(total_of + n * T + t, running, 0.0)
        whole = tl.load(top_of + n * T + t, running, 0.0) + total
        silence = tl.load(logits + t * stride_t + n * stride_n + blank * stride_c, running, 0.0).to(tl.float64) - whole
        sound = tl.load(outputs + t * stride_t, inner & running, ABSENT).to(tl.float64) - whole
        b_before = tl.load(old - 1, inner & running, ABSENT)
        y_before = tl.load(old + width - 1, inner & running, ABSENT)
        to_b, way_b = better(y, none, b, 1)
        to_y, way_y = better(y, none, tl.where(repeat, ABSENT, y_before), 1)
        to_y, way_y = better(to_y, way_y, b_before, 2)
        if STARS:
            star = tl.load(others_of + n * T + t, running, 0.0) - star_score - total
            s_before = tl.load(old + 2 * width - 1, inner & running, ABSENT)
            to_b, way_b = better(to_b, way_b, s, 2)
            to_y, way_y = better(to_y, way_y, s_before, 3)
            to_s, way_s = better(s, none, loop + y, 1)
            to_s, way_s = better(to_s, way_s, loop + b, 2)
            to_s, way_s = better(to_s, way_s, bypass + y_before, 3)
            to_s, way_s = better(to_s, way_s, bypass + b_before, 4)
            if WORDS:
                from_word = old + source - k
                y_word = tl.load(from_word + width, ends & running, ABSENT)
                to_s, way_s = better(to_s, way_s, word + y_word, 5)
                to_s, way_s = better(to_s, way_s, word + tl.load(from_word, ends & running, ABSENT), 6)
            way_y += way_s * 4
            s = tl.where(running, star + to_s, s)
            tl.store(new + 2 * width, s, inside & running)
        b = tl.where(running, silence + to_b, b)
        y = tl.where(running, sound + to_y, y)
        tl.store(new, b, inside & running)
        tl.store(new + width, y, inside & running)
        tl.store(choices + begin * T + t * width + k, way_b + way_y * 4, inside & running)
    tl.debug_barrier()
    last = k + 1 == width
    best, into = better(y, none + 1, b, 0)
    best, into = better(best, into, s, 2)
    best = tl.sum(tl.where(last, best, 0.0), 1)[:, None]
    into = tl.sum(tl.where(last, into, 0), 1)[:, None]
    tl.store(score + n, tl.where(good, best, float("nan")), n < N)
    frames = tl.where(best > ABSENT, frames, 0)
    at = width - 1
    longest = tl.max(frames)
    for back in range(0, longest):
        t = longest - 1 - back
        running = t < frames
        way = tl.load(choices + begin * T + t * width + at, running, 0).to(tl.int32)
        way = tl.where(into == 0, way & 3, tl.where(into == 1, (way >> 2) & 3, way >> 4))
        by = tl.where((into != 2) | (way == 0), 0, tl.where(way < 3, 2, tl.where(way < 5, 1, 3)))
        tl.store(position + n * T + t, at, running)
        tl.store(state + n * T + t, into, running)
        tl.store(arc + n * T + t, by, running)
        back_one = (by == 1) | ((into == 1) & (way > 0))
        before = at - tl.where(back_one, 1, 0)
        if WORDS:
            before = tl.where(by == 3, tl.load(word_start + begin + at, running, 0), before)
        from_blank = tl.where(way == 1, 0, tl.where(way == 2, 2, 1))  # into blank: from the token, blank, ★
        from_token = tl.where(way == 2, 0, tl.where(way == 3, 2, 1))  # into a token: it, the one before, blank, ★
        from_star = tl.where(way == 0, 2, way % 2)  # into ★: itself; token or blank, by each arc
        came = tl.where(into == 0, from_blank, tl.where(into == 1, from_token, from_star))
        at = tl.where(running, before, at)
        into = tl.where(running, came, into)
