"""One frame of alphas or betas from a row of memory to another, a tile of positions after the other, in Triton.

So it works for any number of tokens. A row holds B, N and S of the positions of an utterance one after the other (B and
N without wildcards). A tile reads the old row, also at the position before or after its own and at the other end of a
word, and writes only its own positions of the new row. The caller puts a barrier between two frames; within a frame no
thread reads what another one writes.
"""

import triton.language as tl

from wildctc.lattice.triton_scaled import (
    ABSENT,
    add,
    advance,
    exp_of,
    inlined,
    load_number,
    out_of,
    retreat,
    store_number,
    times,
    zero_of,
)


@inlined
def emission_of(silence_of, others_of, at, log_others, mask):
    """The emissions of blank and ★ in a frame."""
    blank = exp_of(tl.load(silence_of + at, mask, ABSENT))
    star = exp_of(tl.load(others_of + at, mask, ABSENT) - log_others)
    return blank, star


@inlined
def either_at(cells, at, width, mask):
    """B + N."""
    return add(load_number(cells[0], cells[1], at, mask), load_number(cells[0], cells[1], at + width, mask))


@inlined
def advance_tile(
    cells, old, new, k, width, running, sound, graph, place, blank, star, STARS: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """Alphas of a tile after a frame, from those before it."""
    labels, arcs_m, arcs_e, P, word_start, _ = graph
    m, e = cells
    inside, inner = running & (k < width), running & (k < width) & (k > 0)
    at, before = old + k, old + k - 1
    p = exp_of(tl.load(sound + k, inner, ABSENT))
    b, y = load_number(m, e, at, inside), load_number(m, e, at + width, inside)
    b_before, y_before = load_number(m, e, before, inner), load_number(m, e, before + width, inner)
    label = tl.load(labels + place + k, inner, -1)
    repeat = inner & (label == tl.load(labels + place + k - 1, inner, -1))
    if STARS:
        s, s_before = load_number(m, e, at + 2 * width, inside), load_number(m, e, before + 2 * width, inner)
        bypass = load_number(arcs_m, arcs_e, place + k, inside)
        loop = load_number(arcs_m, arcs_e, place + k + P, inside)
    else:
        s, s_before, bypass, loop = b, b_before, b, b  # not used
    into, either_before = out_of(b_before, y_before, s_before, repeat, STARS)
    by_word = either_before
    if WORDS:
        source = tl.load(word_start + place + k, inside, -1)
        weight = load_number(arcs_m, arcs_e, place + k + 2 * P, inside)
        by_word = times(either_at(cells, old + source, width, inside & (source >= 0)), weight)
    b, y, s = advance(b, y, s, into, either_before, by_word, p, blank, star, loop, bypass, STARS, WORDS)
    store_number(m, e, new + k, b, inside)
    store_number(m, e, new + k + width, y, inside)
    if STARS:
        store_number(m, e, new + k + 2 * width, s, inside)


@inlined
def retreat_tile(
    cells, old, new, k, width, running, sound, graph, place, blank, star, STARS: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """Betas of a tile before a frame, from those after it. Returns beta of S after the frame times its emission."""
    labels, arcs_m, arcs_e, P, _, word_end = graph
    m, e = cells
    inside, follows = running & (k < width), running & (k + 1 < width)
    at, after = old + k, old + k + 1
    p = exp_of(tl.load(sound + k, inside, ABSENT))
    p_after = exp_of(tl.load(sound + k + 1, follows, ABSENT))
    b = load_number(m, e, at, inside)
    in_token = times(load_number(m, e, at + width, inside), p)
    next_token = times(load_number(m, e, after + width, follows), p_after)
    label = tl.load(labels + place + k, inside, -1)
    repeat_follows = follows & (label == tl.load(labels + place + k + 1, follows, -1))
    if STARS:
        in_star = times(load_number(m, e, at + 2 * width, inside), star)
        next_star = times(load_number(m, e, after + 2 * width, follows), star)
        loop = load_number(arcs_m, arcs_e, place + k + P, inside)
        next_bypass = load_number(arcs_m, arcs_e, place + k + 1, follows)
    else:
        in_star, next_star, loop, next_bypass = b, b, b, b  # not used
    by_word = in_star
    if WORDS:
        end = tl.load(word_end + place + k, inside, -1)
        leads = inside & (end >= 0)
        weight = load_number(arcs_m, arcs_e, place + end + 2 * P, leads)
        by_word = times(times(load_number(m, e, old + end + 2 * width, leads), star), weight)
    b, y, s = retreat(
        b, in_token, in_star, next_token, next_star, by_word, repeat_follows, blank, loop, next_bypass, STARS, WORDS
    )
    store_number(m, e, new + k, b, inside)
    store_number(m, e, new + k + width, y, inside)
    if STARS:
        store_number(m, e, new + k + 2 * width, s, inside)
    return in_star


@inlined
def boundary_tile(cells, at, k, width, mask, one_at, ALL: tl.constexpr, STARS: tl.constexpr):
    """A row before the first frame or after the last: 1 in B at a position, with ALL in every state; otherwise 0."""
    m, e = cells
    mask = mask & (k < width)
    nothing = zero_of(tl.zeros((1,), m.dtype.element_ty))
    here = tl.where(k == one_at, 0, nothing).to(e.dtype.element_ty)
    rest = here if ALL else tl.where(k == -1, 0, nothing).to(e.dtype.element_ty)
    tl.store(m + at + k, 1.0, mask)
    tl.store(e + at + k, here, mask)
    tl.store(m + at + k + width, 1.0, mask)
    tl.store(e + at + k + width, rest, mask)
    if STARS:
        tl.store(m + at + k + 2 * width, 1.0, mask)
        tl.store(e + at + k + 2 * width, rest, mask)
