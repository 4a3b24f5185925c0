"""Wildcard arcs in the lattice of a transducer (RNN-T), in plain PyTorch: docs/transducers.md.

A transducer has an output distribution at each node (t, u): t frames are behind, and u tokens. The arcs are

    blank        (t, u) → (t+1, u)    P(blank | t, u)
    token        (t, u) → (t, u+1)    P(y_{u+1} | t, u)
    bypass       (t, u) → (t, u+1)    e^bypass · P(★ | t, u)         the token was not said
    word bypass  (t, s) → (t, e)      e^word_bypass · P(★ | t, s)    the word with the tokens s+1 … e was not said
    self-loop    (t, u) → (t+1, u)    e^self_loop · P(★ | t, u)      the frame has speech that is not written

A path starts at (0, 0) and leaves the last frame at (T−1, U) by a blank or a self-loop. The loss is −log of the sum
over all paths. P(★) is the mean probability of a token, as in the lattice of CTC (specification §2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import ABSENT, Wildcards
from wildctc.lattice.reference import log_sum


class _Arcs(NamedTuple):
    """Log-probabilities of the arcs of a batch."""

    frame: Tensor  # (N, T, U+1): to the next frame, by blank or by self-loop
    step: Tensor  # (N, T, U): to the next token, by the token or by its bypass
    word: Tensor  # (N, T, U+1): from each position; −inf where no word starts


def wildcard_rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: Literal["none", "mean", "sum"] = "mean",
    *,
    wildcards: Wildcards | None = None,
    words: Tensor | None = None,
) -> Tensor:
    """Compute the transducer loss, with or without wildcard arcs. It is slow: a step in Python for each node.

    Args:
        logits: (N, T, U+1, C), the outputs of the joiner.
        targets: (N, U) padded labels.
        input_lengths: (N,) frames of each utterance, at least 1.
        target_lengths: (N,) labels of each transcript.
        blank: The label of the blank.
        reduction: "none", "sum", or "mean" over utterances.
        wildcards: The weights of the wildcard arcs: numbers, or tensors with one for each arc; None for none.
        words: (N, U) the word of each label, −1 for none (`word_ids`); needed by word bypasses only.

    Returns:
        (N,) losses, or a scalar.

    Raises:
        ValueError: A shape, a length or a label is wrong.

    >>> logits = torch.zeros(1, 2, 2, 3)  # two frames, one token: it is said in the first frame or in the second
    >>> loss = wildcard_rnnt_loss(logits, torch.tensor([[1]]), [2], [1])
    >>> round(math.exp(-loss), 6) == round(2 / 27, 6)
    True
    """
    frames_of, tokens_of = torch.as_tensor(input_lengths), torch.as_tensor(target_lengths)
    _check(logits, targets, frames_of, tokens_of, blank, reduction)
    wildcards = wildcards or Wildcards()
    if wildcards.star is not None or wildcards.self_loop_at == "end":
        raise ValueError("transducers have no star= and no self_loop_at='end' yet; leave them out")
    if wildcards.word_bypass is not None and words is None:
        raise ValueError("word_bypass needs words: the word of each label, see wildctc.word_ids")
    spans = _word_ends(words, targets.shape, tokens_of)
    arcs = _score_arcs(logits, targets, tokens_of, blank, wildcards, words, spans)
    losses = -_forward(arcs, spans, frames_of.tolist(), tokens_of.tolist())
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.mean()


def _forward(arcs: _Arcs, spans: list[dict[int, int]], frames_of: list[int], tokens_of: list[int]) -> Tensor:
    """(N,) the log-likelihoods, frame by frame and from left to right inside a frame."""
    size, frames, width = arcs.frame.shape
    zero, none = arcs.frame.new_zeros(size), arcs.frame.new_full((size,), ABSENT)
    before: list[Tensor] | None = None  # what enters the frame at each position
    ends: list[list[Tensor]] = []
    for t in range(frames):
        entered = [zero] + [none] * (width - 1) if before is None else before
        here: list[Tensor] = []
        for u in range(width):
            terms = [entered[u]]
            if u:
                terms.append(here[u - 1] + arcs.step[:, t, u - 1])
                terms += _words_into(u, here, arcs.word[:, t], spans)
            here.append(log_sum(*terms))
        before = [here[u] + arcs.frame[:, t, u] for u in range(width)]
        ends.append(before)
    return torch.stack([ends[frames_of[n] - 1][tokens_of[n]][n] for n in range(size)])


def _words_into(u: int, here: list[Tensor], word: Tensor, spans: list[dict[int, int]]) -> list[Tensor]:
    """The word bypasses that end at u: a term for each start, −inf for utterances whose word starts elsewhere."""
    starts = sorted({start for of_utterance in spans for start, end in of_utterance.items() if end == u})
    terms = []
    for start in starts:
        has = torch.tensor([of_utterance.get(start) == u for of_utterance in spans], device=word.device)
        terms.append(torch.where(has, here[start] + word[:, start], ABSENT))
    return terms


def _score_arcs(
    logits: Tensor,
    targets: Tensor,
    tokens_of: Tensor,
    blank: int,
    wildcards: Wildcards,
    words: Tensor | None,
    spans: list[dict[int, int]],
) -> _Arcs:
    scores = logits.double() if logits.dtype == torch.float64 else logits.float()
    scores = scores.log_softmax(-1)
    size, frames, width, outputs = scores.shape
    others = [v for v in range(outputs) if v != blank]
    star = scores[..., others].logsumexp(-1) - math.log(len(others))
    index = targets.long().reshape(size, 1, width - 1, 1).expand(size, frames, width - 1, 1)
    token = scores[:, :, : width - 1].gather(3, index).squeeze(3)

    def weight(given: float | Tensor | None, columns: int) -> Tensor:
        value = torch.as_tensor(ABSENT if given is None else given, dtype=scores.dtype, device=scores.device)
        return value.expand(size, 1, columns) if value.dim() == 0 else value.unsqueeze(1)[:, :, :columns]

    starts = torch.full((size, 1, width), ABSENT, dtype=scores.dtype, device=scores.device)
    if wildcards.word_bypass is not None and words is not None and width > 1:
        first = torch.tensor([[u in of_utterance for u in range(width)] for of_utterance in spans]).unsqueeze(1)
        number = torch.nn.functional.pad(words.clamp(min=0), (0, 1)).unsqueeze(1)
        each = weight(wildcards.word_bypass, max(int(words.max()) + 1, 1)).gather(2, number)
        starts = torch.where(first.to(scores.device), each, ABSENT)
    loops = weight(wildcards.self_loop, width)
    if wildcards.self_loop_at == "word":
        loops = torch.where(_word_edges(spans, tokens_of.tolist(), width).to(scores.device), loops, ABSENT)
    return _Arcs(
        log_sum(scores[..., blank], star + loops),
        log_sum(token, star[..., : width - 1] + weight(wildcards.bypass, width - 1)),
        star + starts,
    )


def _word_edges(spans: list[dict[int, int]], tokens_of: list[int], width: int) -> Tensor:
    """(N, 1, U+1) bool: the ends of the transcript, and the positions where a word starts or ends."""
    edges = [{0, length, *found.keys(), *found.values()} for found, length in zip(spans, tokens_of, strict=True)]
    return torch.tensor([[u in found for u in range(width)] for found in edges]).unsqueeze(1)


def _word_ends(words: Tensor | None, shape: torch.Size, tokens_of: Tensor) -> list[dict[int, int]]:
    """For each utterance and each word: the position where it starts → the position where it ends."""
    if words is None:
        return [{} for _ in range(shape[0])]
    if words.shape != shape:
        raise ValueError(f"words must have the shape of the targets, {tuple(shape)}, got {tuple(words.shape)}")
    found: list[dict[int, int]] = []
    for row, length in zip(words.tolist(), tokens_of.tolist(), strict=True):
        spans: dict[int, int] = {}
        start = 0
        for u in range(1, length + 1):
            if u == length or row[u] != row[start]:
                if row[start] >= 0:
                    spans[start] = u
                start = u
        found.append(spans)
    return found


def _check(logits: Tensor, targets: Tensor, frames_of: Tensor, tokens_of: Tensor, blank: int, reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'reduction must be "none", "mean" or "sum", got {reduction!r}')
    if logits.dim() != 4 or not logits.is_floating_point():
        raise ValueError(f"logits must be (N, T, U+1, C), floating point, got {tuple(logits.shape)} {logits.dtype}")
    size, frames, width, outputs = logits.shape
    if targets.shape != (size, width - 1):
        raise ValueError(f"targets must be (N, U) = ({size}, {width - 1}), got {tuple(targets.shape)}")
    if not 0 <= blank < outputs or outputs < 2:
        raise ValueError(f"blank is {blank}, must be one of C = {outputs} outputs, and not the only one")
    for name, lengths, least, most in (("input", frames_of, 1, frames), ("target", tokens_of, 0, width - 1)):
        if lengths.shape != (size,) or ((lengths < least) | (lengths > most)).any():
            raise ValueError(f"{name}_lengths must be {size} numbers from {least} to {most}, got {lengths.tolist()}")
    inside = torch.arange(width - 1, device=targets.device) < tokens_of.to(targets.device).unsqueeze(1)
    bad = inside & ((targets < 0) | (targets >= outputs) | (targets == blank))
    if bad.any():
        n, u = bad.nonzero()[0].tolist()
        raise ValueError(
            f"utterance {n}: label {u} is {int(targets[n, u])}, must be one of {outputs} outputs, not blank"
        )
