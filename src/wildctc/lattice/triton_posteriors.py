"""Posteriors in Triton: all segments of EVERY frames at the same time, from the rows that the sweep left.

A program computes the alphas of its segment again, from the row kept at its start, into memory of its own; then it
goes back from the betas at its end, and multiplies. So no more than every EVERY-th row is ever kept.
"""

import triton
import triton.language as tl

from wildctc.lattice.triton_graph import VARYING
from wildctc.lattice.triton_rows import advance_tile, boundary_tile, either_at, emission_of, retreat_tile
from wildctc.lattice.triton_scaled import INTERPRETED, inlined, load_number, plain, store_number, times


@triton.jit
def _add_each(a, b, c, d, e, f):
    return a + d, b + e, c + f


@inlined
def _sums(a, b, c):
    """Sums over positions: one reduction of three numbers, except in the interpreter, which adds numbers one by one."""
    if INTERPRETED:
        return tl.sum(a, 1), tl.sum(b, 1), tl.sum(c, 1)
    return tl.reduce((a, b, c), 1, _add_each)


@inlined
def _copy_tile(cells, at, source, its, k, width, mask, STARS: tl.constexpr):
    """A row of the sweep to one of the segment."""
    mask = mask & (k < width)
    store_number(cells[0], cells[1], at + k, load_number(source[0], source[1], its + k, mask), mask)
    its, at = its + width, at + width
    store_number(cells[0], cells[1], at + k, load_number(source[0], source[1], its + k, mask), mask)
    if STARS:
        its, at = its + width, at + width
        store_number(cells[0], cells[1], at + k, load_number(source[0], source[1], its + k, mask), mask)


@inlined
def _posterior(alpha, beta, unit):
    """alpha · beta / likelihood, except for a factor near 1."""
    m, e = times(alpha, beta)
    return plain((m, e - unit))


@inlined
def _count(counts, at, mask, started, either, weight, in_star, unit, share):
    """Add the posterior of an arc into ★ in this frame to that of the later frames of the segment."""
    m, e = times(times(either, weight), in_star)
    before = tl.load(counts + at, mask & started, 0.0)
    tl.store(counts + at, before + plain((m, e - unit)) * share, mask)


@triton.jit(do_not_specialize=VARYING)
def posteriors(
    sounds, silence_of, others_of, log_others, frames_of, tokens_of, first, usable, labels, arcs_m, arcs_e, word_start,
    word_end, alpha_m, alpha_e, beta_m, beta_e, likelihood_e, scratch_m, scratch_e, occupancy, shares, silences, stars,
    bypass_counts, loop_counts, word_counts, T, N, P, marks, segments, widest,
    STARS: tl.constexpr, WORDS: tl.constexpr, OCCUPANCY: tl.constexpr,
    COUNT_BYPASS: tl.constexpr, COUNT_LOOP: tl.constexpr, COUNT_WORD: tl.constexpr,
    GROUP: tl.constexpr, TILE: tl.constexpr, EVERY: tl.constexpr,
):  # fmt: skip
    """For each frame: occupancies of each token, of blank and of ★; for each segment and arc: the expected count.

    Occupancies of tokens are to be multiplied by the share of their frame: so they add up to 1 with the others, but for
    the rounding of this frame alone. Counts of segment c of utterance n are at first[n] · segments + c · width.

    Why nothing races: the rows of a program are its own, those of the sweep are only read here. Alphas of row i + 1 are
    written from row i, with a barrier between rows. Betas take turns in two rows: step i reads row i + 1 and writes row
    i, and the barrier at its start stands behind all reads of the row that it overwrites. The counts of an arc are
    read and written by the program alone, once in a step.
    """
    states: tl.constexpr = 3 if STARS else 2
    g = tl.arange(0, GROUP).to(tl.int64)[:, None]
    own = (tl.program_id(0).to(tl.int64) * GROUP + g) * (EVERY + 3) * states * widest
    mine = scratch_m, scratch_e
    graph = labels, arcs_m, arcs_e, P, word_start, word_end
    star_score = tl.load(log_others)
    total_items = N.to(tl.int64) * segments
    for first_item in range(
        tl.program_id(0).to(tl.int64) * GROUP, total_items, tl.num_programs(0).to(tl.int64) * GROUP
    ):
        item = first_item + g
        n, segment = item // segments, item % segments
        there = item < total_items
        there = there & (tl.load(usable + n, there, 0) != 0)
        width = tl.load(tokens_of + n, there, -1) + 1
        place = tl.load(first + n, there, 0)
        frames = tl.load(frames_of + n, there, 0)
        unit = tl.load(likelihood_e + n, there, 0)
        began = segment * EVERY
        length = tl.minimum(tl.maximum(frames - began, 0), EVERY)
        there = length > 0
        row = states * width
        kept = place * (marks + 2) * states
        sound = sounds + place * T + began * width
        widest_here, longest = tl.max(tl.where(there, width, 0)), tl.max(length).to(tl.int32)
        ends_here = began + length == frames
        betas = own + (EVERY + 1 + length % 2) * row
        tl.debug_barrier()  # the rows of the item before are no longer read
        for tile in range(0, widest_here, TILE):
            k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
            _copy_tile(mine, own, (alpha_m, alpha_e), kept + segment * row, k, width, there, STARS)
            _copy_tile(
                mine, betas, (beta_m, beta_e), kept + (segment + 1) * row, k, width, there & (ends_here == 0), STARS
            )
            boundary_tile(mine, betas, k, width, there & ends_here, width - 1, True, STARS)
        for i in range(0, longest):
            running = i < length
            blank, star = emission_of(silence_of, others_of, n * T + began + i, star_score, running)
            old = own + i * row
            tl.debug_barrier()
            for tile in range(0, widest_here, TILE):
                k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
                advance_tile(
                    mine, old, old + row, k, width, running, sound + i * width, graph, place, blank, star, STARS, WORDS
                )
        for back in range(0, longest):
            i = longest - 1 - back
            running, started = i < length, i + 1 < length
            at = n * T + began + i
            blank, star = emission_of(silence_of, others_of, at, star_score, running)
            alphas, before = own + (i + 1) * row, own + i * row
            old, new = own + (EVERY + 1 + (i + 1) % 2) * row, own + (EVERY + 1 + i % 2) * row
            tl.debug_barrier()
            in_b = tl.zeros((GROUP, TILE), sounds.dtype.element_ty)
            in_y, in_s = in_b, in_b
            for tile in range(0, widest_here, TILE):
                k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
                inside = running & (k < width)
                token = _posterior(
                    load_number(scratch_m, scratch_e, alphas + k + width, inside),
                    load_number(scratch_m, scratch_e, old + k + width, inside),
                    unit,
                )
                in_y += token
                in_b += _posterior(
                    load_number(scratch_m, scratch_e, alphas + k, inside),
                    load_number(scratch_m, scratch_e, old + k, inside),
                    unit,
                )
                if STARS:
                    in_s += _posterior(
                        load_number(scratch_m, scratch_e, alphas + k + 2 * width, inside),
                        load_number(scratch_m, scratch_e, old + k + 2 * width, inside),
                        unit,
                    )
                if OCCUPANCY:
                    tl.store(occupancy + place * T + (began + i) * width + k, token, inside)
            sum_b, sum_y, sum_s = _sums(in_b, in_y, in_s)
            whole = (sum_b + sum_y + sum_s)[:, None]
            share = 1.0 / tl.where(running & (whole > 0), whole, 1.0)
            if OCCUPANCY:
                tl.store(shares + at, share, running)
                tl.store(silences + at, sum_b[:, None] * share, running)
                if STARS:
                    tl.store(stars + at, sum_s[:, None] * share, running)
            for tile in range(0, widest_here, TILE):
                k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
                in_star = retreat_tile(
                    mine, old, new, k, width, running, sound + i * width, graph, place, blank, star, STARS, WORDS
                )
                inside, inner = running & (k < width), running & (k < width) & (k > 0)
                counted = place * segments + segment * width + k
                if COUNT_LOOP:
                    weight = load_number(arcs_m, arcs_e, place + k + P, inside)
                    either = either_at(mine, before + k, width, inside)
                    _count(loop_counts, counted, inside, started, either, weight, in_star, unit, share)
                if COUNT_BYPASS:
                    weight = load_number(arcs_m, arcs_e, place + k, inner)
                    either = either_at(mine, before + k - 1, width, inner)
                    _count(bypass_counts, counted, inside, started, either, weight, in_star, unit, share)
                if COUNT_WORD:
                    source = tl.load(word_start + place + k, inside, -1)
                    ends = inside & (source >= 0)
                    weight = load_number(arcs_m, arcs_e, place + k + 2 * P, ends)
                    either = either_at(mine, before + source, width, ends)
                    _count(word_counts, counted, inside, started, either, weight, in_star, unit, share)


@triton.jit(do_not_specialize=VARYING)
def add_counts(
    frames_of, tokens_of, first, usable, words, starts, word_start, counts, result, result_n, N, segments, shift,
    EACH: tl.constexpr, WORD: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, EVERY: tl.constexpr,
):  # fmt: skip
    """Add up the counts of the segments. EACH: the count of each arc; otherwise one of all arcs of an utterance.

    `shift`: the position of the first arc of a family, 1 for those that lead on. WORD: by word, not by position.
    """
    n = (tl.program_id(0).to(tl.int64) * GROUP + tl.arange(0, GROUP))[:, None]
    there = tl.load(usable + n, n < N, 0) != 0
    width = tl.load(tokens_of + n, there, -1) + 1
    place = tl.load(first + n, there, 0)
    used = (tl.load(frames_of + n, there, 0) + EVERY - 1) // EVERY
    whole = tl.zeros((GROUP, TILE), counts.dtype.element_ty)
    for tile in range(0, tl.max(width), TILE):
        k = tile + tl.arange(0, TILE).to(tl.int64)[None, :]
        inside = (k >= shift) & (k < width)
        if WORD:
            inside = inside & (tl.load(word_start + place + k, inside, -1) >= 0)
        found = tl.zeros((GROUP, TILE), counts.dtype.element_ty)
        for segment in range(0, tl.max(used)):
            found += tl.load(counts + place * segments + segment * width + k, inside & (segment < used), 0.0)
        if EACH:
            arc = k - shift
            if WORD:
                arc = tl.load(words + tl.load(starts + n, there, 0) + k - 1, inside, -1)
            tl.store(result + n * result_n + arc, found, inside & (arc >= 0) & (arc < result_n))
        else:
            whole += found
    if not EACH:
        tl.store(result + n, tl.sum(whole, 1)[:, None], there)
