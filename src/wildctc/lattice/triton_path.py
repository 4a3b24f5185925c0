"""The best path in Triton: the forward pass with max instead of sum, a byte per cell for the choice, and the trace.

A tile of positions after the other, with a barrier between frames, as in triton_rows.py. All in float64, as in the
other backends. Candidates are in the order of reference.py, and ties are decided as there.
"""

import triton
import triton.language as tl

from wildctc.lattice import reference
from wildctc.lattice.triton_graph import VARYING
from wildctc.lattice.triton_scaled import ABSENT, inlined

# as in reference.py; both numbers are exact in float32, which constants are passed as
_TOKEN_ARC = tl.constexpr(float(reference.TOKEN_ARC))
_ROUNDING = tl.constexpr(reference.ROUNDING)


@inlined
def _better(best, arcs, choice, candidate, its_arcs, number):
    """Take the candidate if its score is larger, or ties and its arcs are preferred. A NaN that comes first stays."""
    slack = _ROUNDING * (1.0 + tl.abs(candidate))
    more = (candidate - slack > best) | ((candidate + slack >= best) & (its_arcs > arcs))
    return tl.where(more, candidate, best), tl.where(more, its_arcs, arcs), tl.where(more, number, choice)


@inlined
def _path_tile(
    sound, labels, arcs, P, word_start, cells, choices, k, place, width, running, old, new, silence, star, total,
    STARS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """The best ways into B, N and S of a tile after a frame; see `best_path` for what is stored."""
    inside, inner = running & (k < width), running & (k < width) & (k > 0)
    heard = tl.load(sound + k, inner, ABSENT) - total
    label = tl.load(labels + place + k, inner, -1)
    repeat = inner & (label == tl.load(labels + place + k - 1, inner, -1))
    none = tl.where(inside, 0, 0)
    at, before = cells + old + k, cells + old + k - 1
    b, y = tl.load(at, inside, ABSENT), tl.load(at + width, inside, ABSENT)
    b_arcs, y_arcs = tl.load(at + 3 * width, inside, 0.0), tl.load(at + 4 * width, inside, 0.0)
    b_before, y_before = tl.load(before, inner, ABSENT), tl.load(before + width, inner, ABSENT)
    b_had, y_had = tl.load(before + 3 * width, inner, 0.0), tl.load(before + 4 * width, inner, 0.0)
    to_b, arcs_b, way_b = _better(y, y_arcs, none, b, b_arcs, 1)
    changed = tl.where(repeat, ABSENT, y_before)
    to_y, arcs_y, way_y = _better(y, y_arcs, none, changed, y_had + _TOKEN_ARC, 1)
    to_y, arcs_y, way_y = _better(to_y, arcs_y, way_y, b_before, b_had + _TOKEN_ARC, 2)
    out = cells + new + k
    if STARS:
        bypass = tl.load(arcs + place + k, inside, ABSENT)
        loop = tl.load(arcs + place + k + P, inside, ABSENT)
        s, s_arcs = tl.load(at + 2 * width, inside, ABSENT), tl.load(at + 5 * width, inside, 0.0)
        s_before, s_had = tl.load(before + 2 * width, inner, ABSENT), tl.load(before + 5 * width, inner, 0.0)
        to_b, arcs_b, way_b = _better(to_b, arcs_b, way_b, s, s_arcs, 2)
        to_y, arcs_y, way_y = _better(to_y, arcs_y, way_y, s_before, s_had + _TOKEN_ARC, 3)
        to_s, arcs_s, way_s = _better(s, s_arcs, none, loop + y, y_arcs - 1.0, 1)
        to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, loop + b, b_arcs - 1.0, 2)
        to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, bypass + y_before, y_had - 1.0, 3)
        to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, bypass + b_before, b_had - 1.0, 4)
        if WORDS:
            source = tl.load(word_start + place + k, inside, -1)
            ends = inside & (source >= 0)
            word = tl.load(arcs + place + k + 2 * P, ends, ABSENT)
            its = cells + old + source
            b_word, y_word = tl.load(its, ends, ABSENT), tl.load(its + width, ends, ABSENT)
            b_had, y_had = tl.load(its + 3 * width, ends, 0.0), tl.load(its + 4 * width, ends, 0.0)
            to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, word + y_word, y_had - 1.0, 5)
            to_s, arcs_s, way_s = _better(to_s, arcs_s, way_s, word + b_word, b_had - 1.0, 6)
        way_y += way_s * 4
        tl.store(out + 2 * width, star + to_s, inside)
        tl.store(out + 5 * width, arcs_s, inside)
    tl.store(out, silence + to_b, inside)
    tl.store(out + width, heard + to_y, inside)
    tl.store(out + 3 * width, arcs_b, inside)
    tl.store(out + 4 * width, arcs_y, inside)
    tl.store(choices + k, (way_b + way_y * 4).to(tl.uint8), inside)


@inlined
def _start_tile(cells, at, k, width, mask):
    """The row before the first frame: score 0 in B of position 0, no arcs yet."""
    mask = mask & (k < width)
    nothing = tl.where(k == -1, 0.0, ABSENT).to(tl.float64)
    tl.store(cells + at + k, tl.where(k == 0, 0.0, nothing), mask)
    tl.store(cells + at + k + width, nothing, mask)
    tl.store(cells + at + k + 2 * width, nothing, mask)
    for row in tl.static_range(3, 6):
        tl.store(cells + at + k + row * width, 0.0, mask)


@triton.jit(do_not_specialize=VARYING)
def best_path(
    sounds, silence_of, others_of, total_of, log_others, frames_of, tokens_of, first, readable, labels, arcs,
    word_start,
    cells, choices, score, position, state, arc, T, N, P,
    STARS: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Score; and for each frame position, state (0 blank, 1 token, 2 ★) and arc (1 bypass, 2 self-loop, 3 word bypass).

    A choice has two bits for B, two for N and three for S: the number of the candidate, in the order used here. `cells`
    holds two frames in turn: the scores of B, N and S, and the integers that decide ties, as float64.

    Why nothing races: as in `triton_sweep`; choices are read only behind the barrier after the last frame.
    """
    n = (tl.program_id(0) * GROUP + tl.arange(0, GROUP)).to(tl.int64)[:, None]
    width = tl.load(tokens_of + n, n < N, -1) + 1
    place = tl.load(first + n, n < N, 0)
    good = tl.load(readable + n, n < N, 0) != 0
    frames = tl.where(good, tl.load(frames_of + n, n < N, 0), 0)
    rows, widest = place * 12, tl.max(width)
    for tile in range(0, widest, TILE):
        k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
        _start_tile(cells, rows, k, width, n < N)
    star_score = tl.load(log_others)
    for t in range(0, tl.max(frames)):
        running = t < frames
        total = tl.load(total_of + n * T + t, running, 0.0)
        silence = tl.load(silence_of + n * T + t, running, 0.0) - total
        star = tl.load(others_of + n * T + t, running, 0.0) - star_score - total
        old, new = rows + (t % 2) * 6 * width, rows + ((t + 1) % 2) * 6 * width
        row = place * T + t * width
        tl.debug_barrier()
        for tile in range(0, widest, TILE):
            k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
            _path_tile(
                sounds + row, labels, arcs, P, word_start, cells, choices + row, k, place, width, running, old, new,
                silence, star, total, STARS, WORDS,
            )  # fmt: skip
    tl.debug_barrier()
    last = cells + rows + (frames % 2) * 6 * width + width - 1
    used = n < N
    b, y, s = tl.load(last, used, ABSENT), tl.load(last + width, used, ABSENT), tl.load(last + 2 * width, used, ABSENT)
    b_arcs, y_arcs = tl.load(last + 3 * width, used, 0.0), tl.load(last + 4 * width, used, 0.0)
    s_arcs = tl.load(last + 5 * width, used, 0.0)
    best, arcs_best, into = _better(y, y_arcs, tl.where(used, 1, 1), b, b_arcs, 0)
    if STARS:
        best, arcs_best, into = _better(best, arcs_best, into, s, s_arcs, 2)
    tl.store(score + n, tl.where(good, best, float("nan")), n < N)
    frames = tl.where(best > ABSENT, frames, 0)
    at = width - 1
    longest = tl.max(frames)
    for back in range(0, longest):
        t = longest - 1 - back
        running = t < frames
        way = tl.load(choices + place * T + t * width + at, running, 0).to(tl.int32)
        way = tl.where(into == 0, way & 3, tl.where(into == 1, (way >> 2) & 3, way >> 4))
        by = tl.where((into != 2) | (way == 0), 0, tl.where(way < 3, 2, tl.where(way < 5, 1, 3)))
        tl.store(position + n * T + t, at, running)
        tl.store(state + n * T + t, into, running)
        tl.store(arc + n * T + t, by, running)
        back_one = (by == 1) | ((into == 1) & (way > 0))
        before = at - tl.where(back_one, 1, 0)
        if WORDS:
            before = tl.where(by == 3, tl.load(word_start + place + at, running, 0), before)
        from_blank = tl.where(way == 1, 0, tl.where(way == 2, 2, 1))  # into blank: from the token, blank, ★
        from_token = tl.where(way == 2, 0, tl.where(way == 3, 2, 1))  # into a token: it, the token before, blank, ★
        from_star = tl.where(way == 0, 2, way % 2)  # into ★: from itself; from token or blank, by each arc
        came = tl.where(into == 0, from_blank, tl.where(into == 1, from_token, from_star))
        at = tl.where(running, before, at)
        into = tl.where(running, came, into)
