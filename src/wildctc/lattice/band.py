"""The best path in a band, for recordings for which the best of all paths would take too long.

The band follows a guide: places where the most likely labels of the frames and the transcript have the same run of
labels, which neither has anywhere else. Between two such places that follow each other, all positions are looked at. So
the band follows where speech is not in the text, or text was not said; and where recording and text share nothing, the
band holds everything.
"""

from bisect import bisect_left
from typing import TypeAlias

import torch
from torch import Tensor

from wildctc.lattice import native
from wildctc.lattice.arcs import Lattice, padded_rows

_RUNS = (12, 6, 3)  # labels in a run, the first with which there are enough places
_ENOUGH = 200  # tokens between two places, on average, are close enough
_FRAMES_A_TOKEN = 2  # of a bypassed one: ★, and the blank before the next ★
_NEAR = 8  # a path touches the edge within this share of the band

_Place: TypeAlias = tuple[int, int]  # the frame and the token that begin a run
_Path: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


def best_path_in_band(lattice: Lattice, width: int) -> tuple[_Path, list[int | None]]:
    """Find the best path of each utterance in a band.

    The band is doubled until the path does not touch its edge and is no better than in half of the band. The second
    condition is needed: a path that would leave the band altogether does not always touch its edge.

    Args:
        lattice: The batch, on the CPU.
        width: Positions on either side of the guide, at first; twice as many are tried at least.

    Returns:
        What `native.best_path` returns, and for each utterance the width of the band; None if it held all positions.

    Raises:
        ValueError: The width is not a positive number.
    """
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"band is {width!r}, must be a number of tokens, at least 1")
    native.check_values(lattice)
    frames, size, _ = lattice.logits.shape
    places = [_places(lattice, n) for n in range(size)]
    tokens = lattice.target_lengths.tolist()
    widths = [width] * size
    before = torch.full((size,), torch.nan, dtype=torch.float64)  # the scores in half of the band
    while True:
        rows = [_edges(places[n], frames, tokens[n], widths[n]) for n in range(size)]
        first, last = (
            torch.stack(side) if size else torch.zeros(0, frames, dtype=torch.int32) for side in _columns(rows)
        )
        found = native.best_path(lattice, (first, last))
        whole = [bool((a == 0).all() and (b == u).all()) for a, b, u in zip(first, last, tokens, strict=True)]
        settled = (found[0] == before) | found[0].isnan()
        again = [
            not whole[n] and (not settled[n] or _touches(lattice, n, found, rows[n], widths[n])) for n in range(size)
        ]
        if not any(again):
            return found, [None if all_of_it else w for all_of_it, w in zip(whole, widths, strict=True)]
        before = found[0]
        widths = [2 * w if more else w for w, more in zip(widths, again, strict=True)]


def _columns(rows: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    return [first for first, _ in rows], [last for _, last in rows]


def _places(lattice: Lattice, n: int) -> list[_Place]:
    """Where the guide goes through, in order of time."""
    length = int(lattice.input_lengths[n])
    best = lattice.logits[:length, n].argmax(-1)
    changes = torch.ones_like(best, dtype=torch.bool)
    changes[1:] = best[1:] != best[:-1]
    frames = (changes & (best != lattice.blank)).nonzero().squeeze(1)
    targets = lattice.targets
    if targets.dim() == 1:
        targets = padded_rows(targets, lattice.target_lengths, 0)
    labels = targets[n, : int(lattice.target_lengths[n])]
    found: list[_Place] = []
    for run in _RUNS:
        found = _longest_chain(_shared_runs(best[frames], labels, frames, run))
        if len(found) * _ENOUGH >= len(labels):
            break
    return found


def _shared_runs(heard: Tensor, written: Tensor, frames: Tensor, run: int) -> list[_Place]:
    """Runs of labels that are once in each, in order of time."""
    if min(len(heard), len(written)) < run:
        return []
    rows = torch.cat([heard.unfold(0, run, 1), written.unfold(0, run, 1)])
    _, kind = rows.unique(dim=0, return_inverse=True)
    count = len(heard) - run + 1
    ours, theirs = kind[:count], kind[count:]
    kinds = int(kind.max()) + 1
    once = (torch.bincount(ours, minlength=kinds) == 1) & (torch.bincount(theirs, minlength=kinds) == 1)
    at = torch.zeros(kinds, dtype=torch.int64)
    at[theirs] = torch.arange(len(theirs))
    index = once[ours].nonzero().squeeze(1)
    return list(zip(frames[index].tolist(), at[ours[index]].tolist(), strict=True))


def _longest_chain(places: list[_Place]) -> list[_Place]:
    """The most places whose tokens rise with time: the longest rising subsequence."""
    ends: list[int] = []  # the least token with which a chain of each length ends
    which: list[int] = []
    before: list[int] = []
    for i, (_, token) in enumerate(places):
        length = bisect_left(ends, token)
        before.append(which[length - 1] if length else -1)
        if length == len(ends):
            ends.append(token)
            which.append(i)
        else:
            ends[length], which[length] = token, i
    chain = []
    i = which[-1] if which else -1
    while i >= 0:
        chain.append(places[i])
        i = before[i]
    return chain[::-1]


def _edges(places: list[_Place], frames: int, tokens: int, width: int) -> tuple[Tensor, Tensor]:
    """The first and last position after each frame, (T,) each.

    Between two places that follow each other, the band holds all positions, and more. Where there are many frames
    between them, it holds as many tokens as are usually said in that time, because a path may spread them over speech
    that is not theirs. And it holds enough frames for a path to bypass all these tokens.
    """
    if not frames:
        return torch.zeros(0, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    at, token = torch.tensor([(0, 0), *places, (frames, tokens)]).T
    more_tokens = width + (at[1:] - at[:-1]) * tokens // frames
    more_frames = _FRAMES_A_TOKEN * (token[1:] - token[:-1] + more_tokens - width)
    begins, ends = (x.clamp(0, frames - 1) for x in (at[:-1] - more_frames, at[1:] + more_frames))
    first = torch.full((frames,), tokens).scatter_reduce_(0, ends, token[:-1] - more_tokens, "amin")
    last = torch.zeros(frames, dtype=torch.int64).scatter_reduce_(0, begins, token[1:] + more_tokens, "amax")
    first, last = first.flip(0).cummin(0).values.flip(0), last.cummax(0).values
    return first.clamp(0, tokens).int(), last.clamp(0, tokens).int()


def _touches(lattice: Lattice, n: int, found: _Path, edges: tuple[Tensor, Tensor], width: int) -> bool:
    """Whether the path comes near an edge of the band that is not one of the lattice, or there is no path at all."""
    score, position, _, _ = found
    if score[n].isnan():
        return False
    if score[n] == -torch.inf:  # without a band there may be one
        return True
    length, near = int(lattice.input_lengths[n]), 1 + width // _NEAR
    first, last, at = edges[0][:length], edges[1][:length], position[n, :length]
    left, right = (at - first < near) & (first > 0), (last - at < near) & (last < lattice.target_lengths[n])
    return bool((left | right).any())
