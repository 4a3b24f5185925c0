"""Decode logits to text: greedily, or by prefix beam search without a language model.

Greedy decoding takes the best path. The beam sums over all alignments of a prefix, which is what CTC trains. The search
itself is flashlight-text's, in C++; comments in `_search` explain its options.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from wildctc.errors import MissingExtra, WildCTCError

# Labels beyond a frame's best 40 have almost no probability, and 200 labels would take five times as long.
_LABELS_PER_FRAME = 40
# Prefixes that are this many nats below the best are dropped: they cannot become the best again.
_SCORE_WINDOW = 50.0


class DecodesIds(Protocol):
    """Units that convert labels to text."""

    def decode(self, ids: Sequence[int], /) -> str:
        """Convert labels to text.

        Args:
            ids: Labels without blanks.

        Returns:
            The text.
        """
        ...


@dataclass(frozen=True)
class Hypothesis:
    """One transcription.

    Attributes:
        ids: Labels without blanks.
        text: Their text.
        score: Its natural-log probability.
    """

    ids: list[int]
    text: str
    score: float


def greedy(logits: Tensor, blank: int = 0) -> tuple[list[int], float]:
    """Find the labels of the best path.

    Args:
        logits: (T, C).
        blank: The label of the blank.

    Returns:
        The labels, and the log-probability of the path.

    Raises:
        WildCTCError: Logits are not numbers.

    >>> import torch
    >>> ids, score = greedy(torch.tensor([[0.0, 9, 0], [0, 9, 0], [9, 0, 0], [0, 9, 0], [0, 0, 9]]))
    >>> ids, round(score, 4)
    ([1, 1, 2], -0.0012)
    """
    best, path = _log_probs(logits, blank).max(dim=1)
    return _collapse(path.tolist(), blank), float(best.double().sum())


def beam_search(logits: Tensor, units: DecodesIds, beam: int = 10, blank: int = 0) -> list[Hypothesis]:
    """Find the most probable label sequences by prefix beam search.

    A score is the log-probability of the label sequence, summed over those of its alignments that the beam kept, so it
    is never above the true one.

    Args:
        logits: (T, C). Without frames, the result is the empty text with score 0.
        units: Convert labels to text.
        beam: Prefixes kept.
        blank: The label of the blank.

    Returns:
        At most `beam` hypotheses, best first.

    Raises:
        WildCTCError: The beam is less than 1, or logits are not numbers.

    >>> import torch
    >>> class Letters:
    ...     def decode(self, ids):
    ...         return "".join("_ab"[i] for i in ids)
    >>> probabilities = torch.tensor([[0.6, 0.4, 0.0], [0.6, 0.4, 0.0]])
    >>> for hypothesis in beam_search(probabilities.log(), Letters()):
    ...     print(repr(hypothesis.text), round(hypothesis.score, 3))  # best path: "" with ln 0.36
    'a' -0.446
    '' -1.022
    """
    if beam < 1:
        raise WildCTCError(f"beam must be at least 1, got {beam}")
    log_probs = _log_probs(logits, blank)
    if len(log_probs) == 0:
        return [Hypothesis([], units.decode([]), 0.0)]
    found = []
    for result in _search(log_probs, beam, blank)[:beam]:
        ids = _collapse(result.tokens[1:-1], blank)
        found.append(Hypothesis(ids, units.decode(ids), float(result.score)))
    return found


def best_hypothesis(logits: Tensor, units: DecodesIds, beam: int = 10, blank: int = 0) -> Hypothesis:
    """Find the best hypothesis by prefix beam search.

    Args:
        logits: (T, C).
        units: Convert labels to text.
        beam: Prefixes kept; 1 is greedy.
        blank: The label of the blank.

    Returns:
        The hypothesis.

    Raises:
        WildCTCError: The beam is less than 1, or logits are not numbers.

    >>> import torch
    >>> class Letters:
    ...     def decode(self, ids):
    ...         return "".join("_ab"[i] for i in ids)
    >>> best_hypothesis(torch.tensor([[0.0, 9, 0], [0, 0, 9]]), Letters()).text
    'ab'
    """
    if beam != 1:
        return beam_search(logits, units, beam, blank)[0]
    ids, score = greedy(logits, blank)
    return Hypothesis(ids, units.decode(ids), score)


def _log_probs(logits: Tensor, blank: int) -> Tensor:
    """Compute log-probabilities (T, C), float32, contiguous, on the CPU, and check them."""
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (frames, labels), got {tuple(logits.shape)}")
    if not 0 <= blank < logits.shape[1]:
        raise ValueError(f"blank must be one of the {logits.shape[1]} labels, got {blank}")
    log_probs = logits.detach().float().log_softmax(dim=1).cpu().contiguous()
    bad = log_probs.isnan().any(dim=1)
    if bad.any():
        frame = int(bad.nonzero()[0, 0])
        raise WildCTCError(
            f"cannot decode: the logits of frame {frame} are not numbers (NaN or inf): has training diverged?"
        )
    return log_probs


def _search(log_probs: Tensor, beam: int, blank: int) -> list[Any]:
    """Run flashlight-text on log_probs (T, C). Results are best first; `tokens` have an extra blank at both ends."""
    try:
        from flashlight.lib.text import decoder as flashlight
    except ImportError as error:
        raise MissingExtra("flashlight-text", "train") from error

    options = flashlight.LexiconFreeDecoderOptions(
        # Until the last frame, a prefix has two entries: one that ends in a blank, and one that ends in its label.
        beam_size=2 * beam,
        beam_size_token=min(log_probs.shape[1], _LABELS_PER_FRAME),
        beam_threshold=_SCORE_WINDOW,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,  # sum over alignments; False would give the best path
        criterion_type=flashlight.CriterionType.CTC,
    )
    # The third argument is the label of silence, with which the search starts. It must be the blank: any other label
    # would be lost at its first occurrence, as a repetition.
    search = flashlight.LexiconFreeDecoder(options, flashlight.ZeroLM(), blank, blank, [])
    return search.decode(log_probs.data_ptr(), *log_probs.shape)


def _collapse(path: Sequence[int], blank: int) -> list[int]:
    """Convert a frame-level path to labels: merge repetitions, then remove blanks."""
    return [label for label, before in zip(path, [blank, *path], strict=False) if label not in (before, blank)]
