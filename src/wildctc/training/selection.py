"""Which epochs are the best, for any criterion.

No loss can say so. A criterion's own falls as its weights relax, whatever the model does; plain CTC's rises, since a
model trained with wildcards no longer insists on every letter. Word errors do not tell either: a model that leaves out
what it is unsure of can have fewer of them, and that is how training with wildcards fails. So the rule is the character
error rate with each deleted character counted twice: `cer+deletions`.
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
    """The best `count` epochs, best first; of equals the earlier.

    By `cer+deletions` epochs of nothing but blanks are equal: then the lower plain CTC loss is better, so that
    `training.patience` sees a run get better before it writes.

    The first `ctc_epochs`, which are plain CTC, do not count while there is another.

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
