"""Alphas and betas in registers, in Triton: `triton_sweep` for transcripts that a single warp can hold.

Lane l of a warp has the EACH positions from l · EACH on, as EACH tensors with a position of each lane. The neighbour of
a position is in the same lane, but for the last one of a lane, which one shuffle brings to the next lane. So a frame
needs no barrier and no memory, except that word arcs, which may lead anywhere, go through a row of memory. Emissions
are loaded a frame ahead.
"""

import triton
import triton.language as tl

from wildctc.lattice.triton_graph import VARYING
from wildctc.lattice.triton_scaled import (
    ABSENT,
    add,
    add3,
    advance,
    exp_of,
    inlined,
    load_number,
    nothing_like,
    out_of,
    pick,
    retreat,
    store_number,
    times,
    zero_of,
)


@inlined
def _from_lane(number, lane, there):
    """The number of another lane, 0 where there is none."""
    m, e = tl.gather(number[0], lane, 1), tl.gather(number[1], lane, 1)
    return tl.where(there, m, 1.0), tl.where(there, e, zero_of(m))


@inlined
def _load_frame(sounds, silence_of, others_of, t, at, k, width, running, EACH: tl.constexpr):
    """The logits of a frame: of the blank, of all others, and of the token of each position."""
    heard = ()
    for r in tl.static_range(EACH):
        heard = heard + (tl.load(sounds + t * width + k + r, running & (k + r < width), ABSENT),)
    return tl.load(silence_of + at + t, running, ABSENT), tl.load(others_of + at + t, running, ABSENT), heard


@inlined
def _store_row(cells, at, k, width, b, y, s, mask, STARS: tl.constexpr, EACH: tl.constexpr):
    for r in tl.static_range(EACH):
        inside = mask & (k + r < width)
        store_number(cells[0], cells[1], at + k + r, b[r], inside)
        store_number(cells[0], cells[1], at + k + r + width, y[r], inside)
        if STARS:
            store_number(cells[0], cells[1], at + k + r + 2 * width, s[r], inside)


@inlined
def _arcs(arcs_m, arcs_e, at, k, width, mask, EACH: tl.constexpr):
    """The weights of arcs into the positions k, k + 1, …."""
    found = ()
    for r in tl.static_range(EACH):
        found = found + (load_number(arcs_m, arcs_e, at + k + r, mask & (k + r < width)),)
    return found


@inlined
def _repeats(labels, place, k, width, mask, EACH: tl.constexpr):
    """Whether the token after each position has the label of the token before it."""
    found = ()
    for r in tl.static_range(EACH):
        follows = mask & (k + r + 1 < width)
        label = tl.load(labels + place + k + r, follows, -1)
        found = found + (follows & (label == tl.load(labels + place + k + r + 1, follows, -1)),)
    return found


@inlined
def _other_ends(ends, place, k, width, mask, EACH: tl.constexpr):
    """Where the word that ends, or starts, at each position has its other end; −1 for none."""
    found = ()
    for r in tl.static_range(EACH):
        found = found + (tl.load(ends + place + k + r, mask & (k + r < width), -1).to(tl.int64),)
    return found


@inlined
def _through_words(cells, row, k, width, sent, ends, mask, EACH: tl.constexpr):
    """Send a number of each position to the other ends of words.

    Rows take turns by frames, so one barrier is enough: this row was last read two frames ago, before the barrier of
    the frame between.
    """
    for r in tl.static_range(EACH):
        store_number(cells[0], cells[1], row + k + r, sent[r], mask & (k + r < width))
    tl.debug_barrier()
    found = ()
    for r in tl.static_range(EACH):
        found = found + (load_number(cells[0], cells[1], row + ends[r], mask & (ends[r] >= 0)),)
    return found


@inlined
def _alphas(
    cells, rows, sounds, silence_of, others_of, star_score, labels, arcs_m, arcs_e, P, word_start, place, at,
    frames, width, marks,
    mask, n, likelihood_m, likelihood_e,
    STARS: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr,
    EVERY: tl.constexpr,
):  # fmt: skip
    """Alphas from the start, and the likelihood."""
    states: tl.constexpr = 3 if STARS else 2
    lane = tl.arange(0, LANES)[None, :] + tl.zeros((GROUP, 1), tl.int32)
    before = tl.maximum(lane - 1, 0)
    k = lane.to(tl.int64) * EACH
    nothing = nothing_like(tl.zeros((GROUP, LANES), cells[0].dtype.element_ty))
    repeat = _repeats(labels, place, k, width, mask, EACH)
    bypass = _arcs(arcs_m, arcs_e, place, k, width, mask, EACH)
    loop = _arcs(arcs_m, arcs_e, place + P, k, width, mask, EACH)
    if WORDS:
        weight = _arcs(arcs_m, arcs_e, place + 2 * P, k, width, mask, EACH)
        source = _other_ends(word_start, place, k, width, mask, EACH)
    b, y, s = (), (), ()
    for r in tl.static_range(EACH):
        start = nothing[0], tl.where(k + r == 0, 0, nothing[1])
        b, y, s = b + (start,), y + (nothing,), s + (nothing,)
    silence, others, heard = _load_frame(sounds, silence_of, others_of, 0, at, k, width, 0 < frames, EACH)
    for t in range(0, tl.max(frames).to(tl.int32)):
        if t % EVERY == 0:
            _store_row(cells, rows + t // EVERY * states * width, k, width, b, y, s, mask & (t < frames), STARS, EACH)
        running = t < frames
        blank, star = exp_of(silence), exp_of(others - star_score)
        p = ()
        for r in tl.static_range(EACH):
            p = p + (exp_of(heard[r]),)
        silence, others, heard = _load_frame(sounds, silence_of, others_of, t + 1, at, k, width, t + 1 < frames, EACH)
        onward, either = (), ()
        for r in tl.static_range(EACH):
            out = out_of(b[r], y[r], s[r], repeat[r], STARS)
            onward, either = onward + (out[0],), either + (out[1],)
        if WORDS:
            row = rows + (marks + t % 2) * states * width
            by_words = _through_words(cells, row, k, width, either, source, mask & running, EACH)
        into = _from_lane(onward[EACH - 1], before, lane > 0)
        either_before = into
        if STARS:
            either_before = _from_lane(either[EACH - 1], before, lane > 0)
        new_b, new_y, new_s = (), (), ()
        for r in tl.static_range(EACH):
            by_word = into
            if WORDS:
                by_word = times(by_words[r], weight[r])
            new = advance(
                b[r], y[r], s[r], into, either_before, by_word, p[r], blank, star, loop[r], bypass[r], STARS, WORDS
            )
            if GROUP > 1:
                new = pick(running, new[0], b[r]), pick(running, new[1], y[r]), pick(running, new[2], s[r])
            new_b, new_y, new_s = new_b + (new[0],), new_y + (new[1],), new_s + (new[2],)
            into, either_before = onward[r], either[r]
        b, y, s = new_b, new_y, new_s
    for r in tl.static_range(EACH):
        if STARS:
            total = add3(b[r], y[r], s[r])
        else:
            total = add(b[r], y[r])
        last = mask & (k + r + 1 == width)
        tl.store(likelihood_m + n + k * 0, total[0], last)
        tl.store(likelihood_e + n + k * 0, total[1], last)


@inlined
def _betas(
    cells, rows, sounds, silence_of, others_of, star_score, labels, arcs_m, arcs_e, P, word_end, place, at,
    frames, width, marks,
    mask,
    STARS: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr,
    EVERY: tl.constexpr,
):  # fmt: skip
    """Betas from the end, as far back as the first row that is kept."""
    states: tl.constexpr = 3 if STARS else 2
    lane = tl.arange(0, LANES)[None, :] + tl.zeros((GROUP, 1), tl.int32)
    after = tl.minimum(lane + 1, LANES - 1)
    k = lane.to(tl.int64) * EACH
    nothing = nothing_like(tl.zeros((GROUP, LANES), cells[0].dtype.element_ty))
    repeat = _repeats(labels, place, k, width, mask, EACH)
    next_bypass = _arcs(arcs_m, arcs_e, place, k + 1, width, mask, EACH)
    loop = _arcs(arcs_m, arcs_e, place + P, k, width, mask, EACH)
    if WORDS:
        end = _other_ends(word_end, place, k, width, mask, EACH)
        weight = ()
        for r in tl.static_range(EACH):
            weight = weight + (load_number(arcs_m, arcs_e, place + 2 * P + end[r], end[r] >= 0),)
    b = ()
    for r in tl.static_range(EACH):
        b = b + ((nothing[0], tl.where(k + r + 1 == width, 0, nothing[1])),)
    y, s = b, b
    longest = tl.max(frames).to(tl.int32)
    t = tl.maximum(longest - 1, 0)
    silence, others, heard = _load_frame(sounds, silence_of, others_of, t, at, k, width, t < frames, EACH)
    for back in range(0, longest - EVERY):
        t = longest - 1 - back
        running = t < frames
        blank, star = exp_of(silence), exp_of(others - star_score)
        in_token, in_star = (), ()
        for r in tl.static_range(EACH):
            in_token, in_star = in_token + (times(y[r], exp_of(heard[r])),), in_star + (times(s[r], star),)
        silence, others, heard = _load_frame(sounds, silence_of, others_of, t - 1, at, k, width, t - 1 < frames, EACH)
        if WORDS:
            row = rows + (marks + t % 2) * states * width
            by_words = _through_words(cells, row, k, width, in_star, end, mask & running, EACH)
        next_token = in_token[1:] + (_from_lane(in_token[0], after, lane + 1 < LANES),)
        next_star = in_star
        if STARS:
            next_star = in_star[1:] + (_from_lane(in_star[0], after, lane + 1 < LANES),)
        new_b, new_y, new_s = (), (), ()
        for r in tl.static_range(EACH):
            by_word = in_star[r]
            if WORDS:
                by_word = times(by_words[r], weight[r])
            new = retreat(
                b[r], in_token[r], in_star[r], next_token[r], next_star[r], by_word, repeat[r], blank, loop[r],
                next_bypass[r], STARS, WORDS,
            )  # fmt: skip
            if GROUP > 1:
                new = pick(running, new[0], b[r]), pick(running, new[1], y[r]), pick(running, new[2], s[r])
            new_b, new_y, new_s = new_b + (new[0],), new_y + (new[1],), new_s + (new[2],)
        b, y, s = new_b, new_y, new_s
        if t % EVERY == 0:
            _store_row(cells, rows + t // EVERY * states * width, k, width, b, y, s, mask & running, STARS, EACH)


@triton.jit(do_not_specialize=VARYING)
def sweep_in_registers(
    sounds, silence_of, others_of, log_others, frames_of, tokens_of, first, readable, labels, arcs_m, arcs_e,
    word_start,
    word_end, alpha_m, alpha_e, beta_m, beta_e, likelihood_m, likelihood_e, T, N, P, marks,
    BOTH: tl.constexpr, STARS: tl.constexpr, WORDS: tl.constexpr,
    GROUP: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, EVERY: tl.constexpr,
):  # fmt: skip
    """As `sweep_in_tiles`, for fewer than LANES · EACH tokens.

    Why nothing races: a program is one warp. States pass from lane to lane by shuffles, which are part of the program's
    order. Rows that are kept are read by later launches only. For the numbers of words see `_through_words`.
    """
    pid = tl.program_id(0)
    n = (pid // (2 if BOTH else 1) * GROUP + tl.arange(0, GROUP)).to(tl.int64)[:, None]
    mask = n < N
    width = tl.load(tokens_of + n, mask, -1) + 1
    place = tl.load(first + n, mask, 0)
    good = tl.load(readable + n, mask, 0) != 0
    frames = tl.where(good, tl.load(frames_of + n, mask, 0), 0)
    rows = place * (marks + 2) * (3 if STARS else 2)
    star_score = tl.load(log_others)
    if pid % 2 == 0 or not BOTH:
        _alphas(
            (alpha_m, alpha_e), rows, sounds + place * T, silence_of, others_of, star_score, labels, arcs_m, arcs_e, P,
            word_start, place, n * T, frames, width, marks, mask, n, likelihood_m, likelihood_e,
            STARS, WORDS, GROUP, LANES, EACH, EVERY,
        )  # fmt: skip
    else:
        _betas(
            (beta_m, beta_e), rows, sounds + place * T, silence_of, others_of, star_score, labels, arcs_m, arcs_e, P,
            word_end, place, n * T, frames, width, marks, mask, STARS, WORDS, GROUP, LANES, EACH, EVERY,
        )  # fmt: skip
