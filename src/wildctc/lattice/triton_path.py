"""The best path in Triton: the forward pass with max instead of sum, a byte per cell for the choice, and the trace.

All in float64, as in the other backends. Candidates are in the order of reference.py, and ties are decided as there.
"""

import triton
import triton.language as tl

from wildctc.lattice import reference
from wildctc.lattice.triton_kernel import ABSENT, VARYING_STRIDES, inlined

# as in reference.py; both numbers are exact in float32, which constants are passed as
_TOKEN_ARC = tl.constexpr(float(reference.TOKEN_ARC))
_ROUNDING = tl.constexpr(reference.ROUNDING)


@inlined
def _better(best, arcs, choice, candidate, its_arcs, number):
    """Take the candidate if its score is larger, or ties and its arcs are preferred. A NaN that comes first stays."""
    slack = _ROUNDING * (1.0 + tl.abs(candidate))
    more = (candidate - slack > best) | ((candidate + slack >= best) & (its_arcs > arcs))
    return tl.where(more, candidate, best), tl.where(more, its_arcs, arcs), tl.where(more, number, choice)


@triton.jit(do_not_specialize=VARYING_STRIDES)
def best_path(
    logits, stride_t, stride_n, stride_c, top_of, total_of, others_of, frames_of, tokens_of, first, readable,
    labels, bypass_of, loop_of, word_of, word_start, cells, choices, score, position, state, arc,
    T, N, log_others, blank, STARS: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Score; and for each frame position, state (0 blank, 1 token, 2 ★) and arc (1 bypass, 2 self-loop, 3 word bypass).

    A choice has two bits for B, two for N and three for S: the number of the candidate, in the order used here. `cells`
    holds two frames in turn: the scores of B, N and S, and the integers that decide ties, as float64.
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
    cells += begin * 12 + k
    nothing = tl.full((GROUP, BLOCK), ABSENT, tl.float64)
    none = tl.zeros((GROUP, BLOCK), tl.int32)
    b, y, s = tl.where(k == 0, 0.0, nothing), nothing, nothing
    b_arcs = tl.zeros((GROUP, BLOCK), tl.float64)
    y_arcs, s_arcs = b_arcs, b_arcs
    tl.store(cells, b, inside)
    tl.store(cells + width, y, inside)
    tl.store(cells + 2 * width, s, inside)
    tl.store(cells + 3 * width, b_arcs, inside)
    tl.store(cells + 4 * width, y_arcs, inside)
    tl.store(cells + 5 * width, s_arcs, inside)
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
        old = cells + (t % 2) * 6 * width
        new = cells + ((t + 1) % 2) * 6 * width
        total = tl.load(total_of + n * T + t, running, 0.0)
        top = tl.load(top_of + n * T + t, running, 0.0)
        silence = tl.load(logits + t * stride_t + n * stride_n + blank * stride_c, running, 0.0).to(tl.float64)
        silence = silence - top - total
        sound = tl.load(outputs + t * stride_t, inner & running, ABSENT).to(tl.float64) - top - total
        b_before = tl.load(old - 1, inner & running, ABSENT)
        y_before = tl.load(old + width - 1, inner & running, ABSENT)
        b_had = tl.load(old + 3 * width - 1, inner & running, 0.0)
        y_had = tl.load(old + 4 * width - 1, inner & running, 0.0)
        to_b, arcs_b, way_b = _better(y, y_arcs, none, b, b_arcs, 1)
        changed = tl.where(repeat, ABSENT, y_before)
        to_y, arcs_y, way_y = _better(y, y_arcs, none, changed, y_had + _TOKEN_ARC, 1)
        to_y, arcs_y, way_y = _better(to_y, arcs_y, way_y, b_before, b_had + _TOKEN_ARC, 2)
        if STARS:
            star = tl.load(others_of + n * T + t, running, 0.0) - star_score - total
            s_before = tl.load(old + 2 * width - 1, inner & running, ABSENT)
            s_had = tl.load(old + 5 * width - 1, inner & running, 0.0)
            to_b, arcs_b, way_b = _better(to_b, arcs_b, way_b, s, s_arcs, 2)
            to_y, arcs_y, way_y = _better(to_y, arcs_y, way_y, s_before, s_had + _TOKEN_ARC, 3)
            to_s, arcs_s, way_s = _better(s, s_arcs, none, loop + y, y_arcs - 1.0, 1)
            to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, loop + b, b_arcs - 1.0, 2)
            to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, bypass + y_before, y_had - 1.0, 3)
            to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, bypass + b_before, b_had - 1.0, 4)
            if WORDS:
                from_word = old + source - k
                b_word = tl.load(from_word, ends & running, ABSENT)
                y_word = tl.load(from_word + width, ends & running, ABSENT)
                b_had = tl.load(from_word + 3 * width, ends & running, 0.0)
                y_had = tl.load(from_word + 4 * width, ends & running, 0.0)
                to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, word + y_word, y_had - 1.0, 5)
                to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, word + b_word, b_had - 1.0, 6)
            way_y += way_s * 4
            s, s_arcs = tl.where(running, star + to_s, s), tl.where(running, arcs_s, s_arcs)
            tl.store(new + 2 * width, s, inside & running)
            tl.store(new + 5 * width, s_arcs, inside & running)
        b, b_arcs = tl.where(running, silence + to_b, b), tl.where(running, arcs_b, b_arcs)
        y, y_arcs = tl.where(running, sound + to_y, y), tl.where(running, arcs_y, y_arcs)
        tl.store(new, b, inside & running)
        tl.store(new + width, y, inside & running)
        tl.store(new + 3 * width, b_arcs, inside & running)
        tl.store(new + 4 * width, y_arcs, inside & running)
        tl.store(choices + begin * T + t * width + k, way_b + way_y * 4, inside & running)
    tl.debug_barrier()
    last = k + 1 == width
    best, arcs, into = _better(y, y_arcs, none + 1, b, b_arcs, 0)
    best, arcs, into = _better(best, arcs, into, s, s_arcs, 2)
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
        from_token = tl.where(way == 2, 0, tl.where(way == 3, 2, 1))  # into a token: it, the token before, blank, ★
        from_star = tl.where(way == 0, 2, way % 2)  # into ★: from itself; from token or blank, by each arc
        came = tl.where(into == 0, from_blank, tl.where(into == 1, from_token, from_star))
        at = tl.where(running, before, at)
        into = tl.where(running, came, into)
