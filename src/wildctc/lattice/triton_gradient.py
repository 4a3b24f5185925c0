"""The gradient of the logits in Triton: all frames and outputs at the same time."""

import triton
import triton.language as tl

from wildctc.lattice.triton_graph import VARYING
from wildctc.lattice.triton_scaled import ABSENT


@triton.jit(do_not_specialize=VARYING)
def gradient(
    logits, stride_t, stride_n, stride_c, top_of, total_of, others_of, frames_of, tokens_of, first, starts,
    losses, factor, occupancy, shares, silences, stars, order, runs, result, result_t, result_n, T, C, tiles, blank,
    STARS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradient of each logit: factor · (P(v) − occupancy of v − occupancy of ★ · share of v in ★); blank has no ★ term.

    A program computes a tile of frames × outputs. The tokens of output v are `order[runs[v] : runs[v + 1]]`.
    """
    n = (tl.program_id(0) // tiles).to(tl.int64)
    t = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    v = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)
    loss, scale = tl.load(losses + n), tl.load(factor + n)
    frames = tl.load(frames_of + n)
    running, used = t < frames, t < tl.where(loss < float("inf"), frames, 0)  # not used: no path, or NaN
    valid = v < C
    tile = running[:, None] & valid[None, :]
    x = tl.load(logits + n * stride_n + (t * stride_t)[:, None] + (v * stride_c)[None, :], tile, ABSENT)
    at = n * T + t
    x = x.to(loss.dtype) - tl.load(top_of + at, running, 0.0)[:, None]
    width = tl.load(tokens_of + n) + 1
    share = occupancy + tl.load(first + n) * T + t * width - tl.load(starts + n) + 1
    begin = tl.load(runs + n * (C + 1) + v, valid, 0)
    count = tl.load(runs + n * (C + 1) + v + 1, valid, 0) - begin
    found = tl.zeros((ROWS, COLUMNS), loss.dtype)
    for i in range(0, tl.max(count, 0)):
        u = tl.load(order + begin + i, i < count, 0)
        found += tl.load(share[:, None] + u[None, :], used[:, None] & (i < count)[None, :], 0.0)
    found *= tl.load(shares + at, used, 0.0)[:, None]
    found = tl.where((v == blank)[None, :], tl.load(silences + at, used, 0.0)[:, None], found)
    if STARS:
        others = tl.load(others_of + at, running, 0.0)
        others = tl.where(others == ABSENT, 0.0, others)  # all non-blank logits are −inf: ★ has no outputs
        heard = tl.load(stars + at, used, 0.0)[:, None] * tl.exp(x - others[:, None])
        found += tl.where((v == blank)[None, :], 0.0, heard)
    wanted = (tl.exp(x - tl.load(total_of + at, running, 0.0)[:, None]) - found) * scale
    wanted = tl.where(loss == float("inf"), 0.0, wanted)
    wanted = tl.where(scale == 0, 0.0, tl.where(running[:, None], tl.where(loss != loss, float("nan"), wanted), 0.0))
    place = result + n * result_n + (t * result_t)[:, None] + v[None, :]
    tl.store(place, wanted, (t < T)[:, None] & valid[None, :])
