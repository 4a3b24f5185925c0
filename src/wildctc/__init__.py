"""WildCTC: CTC training that tolerates transcripts which are not perfectly right, and finds out where they are not."""

from os import PathLike
from typing import TYPE_CHECKING

from wildctc.criteria import CRITERIA, Criterion, EntropyDecay, EpochDecay, predictive_entropy
from wildctc.lattice.align import Alignment, Span, WildcardSpan, wildcard_align
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.feasibility import Infeasible, infeasible
from wildctc.lattice.functional import Posteriors, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice.noise import NoiseRates
from wildctc.loss import WildcardCTCLoss
from wildctc.probe.issues import LabelIssue, find_label_issues
from wildctc.text.words import word_ids
from wildctc.version import __version__

if TYPE_CHECKING:
    from wildctc.recognizer.model import Recognizer

__all__ = [
    "CRITERIA",
    "Alignment",
    "Criterion",
    "EntropyDecay",
    "EpochDecay",
    "Infeasible",
    "LabelIssue",
    "NoiseRates",
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


def load(folder: str | PathLike[str], *, trust_front_end: bool = False) -> "Recognizer":
    """The recogniser of a run or of a model folder, on the CPU: `load("runs/ctc").transcribe("a.wav").text`.

    Args:
        folder: of the run or of the model. It may come from a stranger: nothing in it is run.
        trust_front_end: allow a front end that is no part of WildCTC (see `Recognizer.load`).

    Returns:
        The recogniser.
    """
    from wildctc.recognizer.model import Recognizer  # here, so that who wants the loss does not wait for the rest

    return Recognizer.load(folder, trust_front_end=trust_front_end)
