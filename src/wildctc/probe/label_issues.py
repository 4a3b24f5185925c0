"""From the logits of any CTC model to the doubtful places of transcripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wildctc.errors import MissingExtra
from wildctc.lattice.checks import Lengths
from wildctc.lattice.ops import eagerly
from wildctc.probe.graphs import probe_logits
from wildctc.probe.issues import LabelIssue, issues_of

if TYPE_CHECKING:
    import pandas


@eagerly
def find_label_issues(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    *,
    tokens: Sequence[str],
    ids: Sequence[str] | None = None,
    self_loop: float | None = 0.0,
    frame_rate: float = 1.0,
    least: float = 0.5,
) -> list[LabelIssue]:
    """Find the places where transcripts are not what was said, over all utterances, worst first.

    A transcript with too few frames for any path has no issues; `infeasible` lists such transcripts.

    Args:
        logits: (T, N, C), or (T, C) for one utterance; from any CTC model.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated, as for `wildcard_ctc_loss`.
        input_lengths: (N,) frames of each utterance.
        target_lengths: (N,) labels of each transcript.
        blank: The label of the blank.
        tokens: label → string. The space is " " or "|", or the tokens are SentencePiece pieces with ▁.
        ids: The names of the utterances; None names them "0", "1", ….
        self_loop: The log-weight of speech that is not written; None allows no such speech.
        frame_rate: Frames of logits per second. With the default of 1, times are in frames.
        least: The lowest score that is an issue.

    Returns:
        The issues of all utterances, worst first.

    Raises:
        ValueError: Logits are not numbers, so that nothing could be found, or `tokens` does not name each output.

    >>> import torch
    >>> labels = torch.tensor([4, 0, 1, 0, 2, 0, 3, 3])  # what was said: h-a-l-o
    >>> logits = 9.0 * torch.nn.functional.one_hot(labels, 6).float().unsqueeze(1)
    >>> [issue] = find_label_issues(logits, torch.tensor([[4, 5, 2, 3]]), [8], [4], tokens="-alohe")
    >>> issue.kind, issue.written, issue.heard, round(issue.score, 2)
    ('changed', 'helo', 'halo', 1.0)
    """
    probed = probe_logits(
        logits, targets, input_lengths, target_lengths, blank, tokens=tokens, self_loop=self_loop, frame_rate=frame_rate
    )
    names = [str(n) for n in range(len(probed))] if ids is None else list(ids)
    if len(names) != len(probed):
        raise ValueError(f"ids must name each of the {len(probed)} utterances, got {len(names)}")
    found: list[LabelIssue] = []
    for n, (name, utterance) in enumerate(zip(names, probed, strict=True)):
        if utterance is None and _not_numbers(logits, input_lengths, n):
            raise ValueError(
                f"utterance {name}: its logits are not numbers (NaN or +inf, or only -inf in a frame): has training "
                "diverged?"
            )
        if utterance is not None:
            utterance.id = name
            found += issues_of(utterance, least)
    return sorted(found, key=lambda issue: -issue.score)


def as_table(issues: Iterable[LabelIssue]) -> pandas.DataFrame:
    """Put issues into a table of pandas.

    Args:
        issues: What `find_label_issues` returned.

    Returns:
        A row for each, in their order; the columns are the attributes of `LabelIssue`.

    Raises:
        MissingExtra: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "pandas") from None
    return pandas.DataFrame([asdict(issue) for issue in issues], columns=[field.name for field in fields(LabelIssue)])


def _not_numbers(logits: Tensor, input_lengths: Lengths, n: int) -> bool:
    lengths = torch.as_tensor(input_lengths).reshape(-1)
    frames = (logits.unsqueeze(1) if logits.dim() == 2 else logits)[: int(lengths[n]), n]
    return bool((frames.isnan() | frames.isposinf()).any() or frames.isneginf().all(1).any())
