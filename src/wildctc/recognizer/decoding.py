"""From logits to text: greedy, and prefix beam search without a language model.

Greedy takes the best path; the beam sums over all alignments of a prefix, which is what CTC trains. The search itself
is flashlight-text's, in C++: three things about it that one must know are written down in `_search`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from wildctc.errors import MissingExtra, WildCTCError

# A frame's labels beyond the best 40 hold next to no probability, and 200 of them would cost five times as much.
_LABELS_PER_FRAME = 40
# Prefixes this far (in nats) below the best cannot come back.
_SCORE_WINDOW = 50.0


class DecodesIds(Protocol):
    """What decoding asks of units: label ids to text."""

    def decode(self, ids: Sequence[int], /) -> str: ...


@dataclass(frozen=True)
class Hypothesis:
    """One transcription: label ids without blanks, their text, and its natural-log probability."""

    ids: list[int]
    text: str
    score: float


def greedy(logits: Tensor, blank: int = 0) -> tuple[list[int], float]:
    """The labels of the best path through logits (T, C), and that path's log-probability.

    >>> import torch
    >>> ids, score = greedy(torch.tensor([[0.0, 9, 0], [0, 9, 0], [9, 0, 0], [0, 9, 0], [0, 0, 9]]))
    >>> ids, round(score, 4)
    ([1, 1, 2], -0.0012)
    """
    best, path = _log_probs(logits, blank).max(dim=1)
    return _collapse(path.tolist(), blank), float(best.double().sum())


def beam_search(logits: Tensor, units: DecodesIds, beam: int = 10, blank: int = 0) -> list[Hypothesis]:
    """The most probable label sequences of logits (T, C), best first, at most `beam` of them.

    A score is the log-probability of the label sequence: the sum over those of its alignments that the beam kept, so
    never more than the true one. No frames at all give the empty text with score 0.

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
    """The best hypothesis of logits (T, C) by prefix beam search; beam=1 is greedy.

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
    """Checked log-probabilities (T, C), float32, contiguous, on the CPU."""
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
    """flashlight-text's results for log_probs (T, C), best first; `tokens` is a path with a blank more at each end."""
    try:
        from flashlight.lib.text import decoder as flashlight
    except ImportError as error:
        raise MissingExtra("flashlight-text", "train") from error

    options = flashlight.LexiconFreeDecoderOptions(
        # A prefix that ends in a blank and the same one ending in its label are two entries until the last frame.
        beam_size=2 * beam,
        beam_size_token=min(log_probs.shape[1], _LABELS_PER_FRAME),
        beam_threshold=_SCORE_WINDOW,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,  # sum over alignments; otherwise it is the best path again
        criterion_type=flashlight.CriterionType.CTC,
    )
    # The search starts "in silence": were that a label, its first occurrence would pass for a repetition and be lost.
    search = flashlight.LexiconFreeDecoder(options, flashlight.ZeroLM(), blank, blank, [])
    return search.decode(log_probs.data_ptr(), *log_probs.shape)


def _collapse(path: Sequence[int], blank: int) -> list[int]:
    """A frame-level path to labels: repetitions merged, then blanks removed."""
    return [label for label, before in zip(path, [blank, *path], strict=False) if label not in (before, blank)]
