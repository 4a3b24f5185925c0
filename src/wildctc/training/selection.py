"""Select the best epochs of a run, for any criterion.

No loss can select them. A criterion's own loss falls as its weights relax, whatever the model does. The plain CTC loss
rises, because a model trained with wildcards no longer insists on every letter. Word errors cannot select them either:
a model that deletes what it is unsure of can have fewer of them, and that is how training with wildcards fails. The
rule is therefore the character error rate with each deleted character counted twice: `cer+deletions`.
"""

from __future__ import annotations

from wildctc.training.run_folder import Metrics

# `training.select_by`: the metrics whose sum is least in the best epochs. The paper selects by loss.
SELECT = {
    "cer+deletions": ("valid_cer", "valid_deletions"),
    "wer": ("valid_wer",),
    "ctc_loss": ("valid_ctc_loss",),
    "loss": ("valid_loss",),
}


def best_epochs(history: list[Metrics], select_by: str, ctc_epochs: int, count: int) -> list[int]:
    """Rank the epochs of a run.

    By `cer+deletions`, epochs with nothing but blanks are equal. The one with the lower plain CTC loss is then better,
    so that `training.patience` sees progress before the model writes anything. The first `ctc_epochs`, which are plain
    CTC, count only if there are no others.

    Args:
        history: The metrics of all finished epochs.
        select_by: The rule, one of SELECT.
        ctc_epochs: The run's epochs of plain CTC.
        count: How many epochs to return.

    Returns:
        The best epochs, best first; of equal ones the earlier comes first.

    >>> plain = {"epoch": 1, "valid_ctc_loss": 50, "valid_wer": 0.57, "valid_cer": 0.160, "valid_deletions": 0.06}
    >>> deletes = {"epoch": 2, "valid_ctc_loss": 60, "valid_wer": 0.54, "valid_cer": 0.155, "valid_deletions": 0.09}
    >>> [best_epochs([plain, deletes], rule, 0, 1) for rule in ("wer", "cer+deletions")]
    [[2], [1]]
    """
    names = SELECT[select_by]

    def measure(m: Metrics) -> tuple[float, float]:
        return sum(m[name] for name in names), m["valid_ctc_loss"] if select_by == "cer+deletions" else 0.0

    ranked = sorted(history[ctc_epochs:] or history, key=measure)
    return [m["epoch"] for m in ranked[:count]]
