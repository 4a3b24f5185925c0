"""WildCTC: CTC training that tolerates transcripts which are not perfectly right, and finds out where they are not."""

from os import PathLike
from typing import TYPE_CHECKING

from wildctc.audit.issues import LabelIssue, find_label_issues
from wildctc.criteria import CRITERIA, Criterion, EntropyDecay, EpochDecay, predictive_entropy
from wildctc.lattice.align import Alignment, Span, WildcardSpan, wildcard_align
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.feasibility import Infeasible, infeasible
from wildctc.lattice.functional import Posteriors, wildcard_ctc_loss, wildcard_posteriors
from wildctc.loss import WildcardCTCLoss
from wildctc.text import word_ids
from wildctc.version import __version__

if TYPE_CHECKING:
    from wildctc.recognizer import Recognizer

__all__ = [
    "CRITERIA",
    "Alignment",
    "Criterion",
    "EntropyDecay",
    "EpochDecay",
    "Infeasible",
    "LabelIssue",
    "Posteriors",
    "Span",
    "WildcardCTCLoss",
    "WildcardSpan",
    "Wildcards",
    "__version__",
    "find_label_issues",
    "infeasible",
    "load",
    "predictive_entropy",
    "wildcard_align",
    "wildcard_ctc_loss",
    "wildcard_posteriors",
    "word_ids",
]


def load(folder: str | PathLike[str]) -> "Recognizer":
    """The recogniser of a run or of a model folder, on the CPU: `load("runs/ctc").transcribe("a.wav").text`."""
    from wildctc.recognizer import Recognizer  # here, so that who wants the loss does not wait for the rest

    return Recognizer.load(folder)
