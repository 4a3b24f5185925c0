"""Alphas and betas of all frames, at the same time, in Triton: one program each for an utterance, or a few short ones.

The sweep leaves the likelihood, and every EVERY-th row of states, from which triton_posteriors.py computes those
between. Row t is that after t frames; those that are not kept take turns in two rows behind the kept ones.
"""

import triton
import triton.language as tl

from wildctc.lattice.triton_graph import VARYING
from wildctc.lattice.triton_rows import advance_tile, boundary_tile, emission_of, retreat_tile
from wildctc.lattice.triton_scaled import add, add3, inlined, load_number


@inlined
def _row(t, marks, EVERY: tl.constexpr):
    """The place of row t: kept, or one of the two that take turns."""
    return tl.where(t % EVERY == 0, t // EVERY, marks + t % 2)


@triton.jit(do_not_specialize=VARYING)
def sweep_in_tiles(
    sounds, silence_of, others_of, log_others, frames_of, tokens_of, first, readable, labels, arcs_m, arcs_e,
    word_start,
    word_end, alpha_m, alpha_e, beta_m, beta_e, likelihood_m, likelihood_e, T, N, P, marks,
    BOTH: tl.constexpr, STARS: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr,
    EVERY: tl.constexpr,
):  # fmt: skip
    """Any number of tokens: rows go through memory, with a barrier between frames (see triton_rows.py).

    Why nothing races: frame t reads row t and writes row t + 1, and rows t and t + 1 never share a place. What was
    written in a frame is read in the next, behind a barrier; a place is written again two frames later, behind the
    barrier that follows its last read. Programs share no memory that one of them writes.
    """
    pid = tl.program_id(0)
    n = (pid // (2 if BOTH else 1) * GROUP + tl.arange(0, GROUP)).to(tl.int64)[:, None]
    width = tl.load(tokens_of + n, n < N, -1) + 1
    place = tl.load(first + n, n < N, 0)
    good = tl.load(readable + n, n < N, 0) != 0
    frames = tl.where(good, tl.load(frames_of + n, n < N, 0), 0)
    graph = labels, arcs_m, arcs_e, P, word_start, word_end
    states: tl.constexpr = 3 if STARS else 2
    rows = place * (marks + 2) * states
    sounds += place * T
    star_score = tl.load(log_others)
    widest = tl.max(width)
    longest = tl.max(frames).to(tl.int32)
    if pid % 2 == 0 or not BOTH:
        cells = alpha_m, alpha_e
        for tile in range(0, widest, TILE):
            k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
            boundary_tile(cells, rows, k, width, n < N, 0, False, STARS)
        for t in range(0, longest):
            running = t < frames
            blank, star = emission_of(silence_of, others_of, n * T + t, star_score, running)
            old, new = rows + _row(t, marks, EVERY) * states * width, rows + _row(t + 1, marks, EVERY) * states * width
            tl.debug_barrier()
            for tile in range(0, widest, TILE):
                k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
                advance_tile(
                    cells, old, new, k, width, running, sounds + t * width, graph, place, blank, star, STARS, WORDS
                )
        tl.debug_barrier()
        last = rows + _row(frames, marks, EVERY) * states * width + width - 1
        b, y = load_number(alpha_m, alpha_e, last, n < N), load_number(alpha_m, alpha_e, last + width, n < N)
        if STARS:
            total = add3(b, y, load_number(alpha_m, alpha_e, last + 2 * width, n < N))
        else:
            total = add(b, y)
        tl.store(likelihood_m + n, total[0], n < N)
        tl.store(likelihood_e + n, total[1], n < N)
    else:
        cells = beta_m, beta_e
        end = rows + _row(frames, marks, EVERY) * states * width
        for tile in range(0, widest, TILE):
            k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
            boundary_tile(cells, end, k, width, n < N, width - 1, True, STARS)
        for back in range(0, longest - EVERY):  # rows before the first that is kept are not needed
            t = longest - 1 - back
            running = t < frames
            blank, star = emission_of(silence_of, others_of, n * T + t, star_score, running)
            old, new = rows + _row(t + 1, marks, EVERY) * states * width, rows + _row(t, marks, EVERY) * states * width
            tl.debug_barrier()
            for tile in range(0, widest, TILE):
                k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
                retreat_tile(
                    cells, old, new, k, width, running, sounds + t * width, graph, place, blank, star, STARS, WORDS
                )
