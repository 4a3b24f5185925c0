"""WildCTC: CTC training that tolerates transcripts which are not perfectly right, and finds out where they are not.

A name is imported when it is first used: most need torch, which takes seconds, and many commands need no name at all.
"""

import importlib
from os import PathLike
from typing import TYPE_CHECKING, Any

from wildctc.version import __version__

if TYPE_CHECKING:  # for type checkers and editors; `_HOMES` says the same to Python
    from wildctc.criteria import CRITERIA, Criterion, EntropyDecay, EpochDecay, predictive_entropy
    from wildctc.lattice.align import Alignment, Span, WildcardSpan, wildcard_align
    from wildctc.lattice.arcs import Wildcards
    from wildctc.lattice.feasibility import Infeasible, infeasible
    from wildctc.lattice.functional import wildcard_ctc_loss, wildcard_posteriors
    from wildctc.lattice.noise import NoiseRates
    from wildctc.lattice.posteriors import Posteriors
    from wildctc.lattice.transcripts import TranscriptGraph
    from wildctc.loss import WildcardCTCLoss
    from wildctc.probe.issues import LabelIssue
    from wildctc.probe.label_issues import as_table, find_label_issues
    from wildctc.recognizer.model import Recognizer
    from wildctc.text.words import word_ids

_HOMES = {
    "criteria": ("CRITERIA", "Criterion", "EntropyDecay", "EpochDecay", "predictive_entropy"),
    "lattice.align": ("Alignment", "Span", "WildcardSpan", "wildcard_align"),
    "lattice.arcs": ("Wildcards",),
    "lattice.feasibility": ("Infeasible", "infeasible"),
    "lattice.functional": ("wildcard_ctc_loss", "wildcard_posteriors"),
    "lattice.posteriors": ("Posteriors",),
    "lattice.noise": ("NoiseRates",),
    "lattice.transcripts": ("TranscriptGraph",),
    "loss": ("WildcardCTCLoss",),
    "probe.issues": ("LabelIssue",),
    "probe.label_issues": ("as_table", "find_label_issues"),
    "text.words": ("word_ids",),
}

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
    "TranscriptGraph",
    "WildcardCTCLoss",
    "WildcardSpan",
    "Wildcards",
    "__version__",
    "as_table",
    "find_label_issues",
    "infeasible",
    "load",
    "predictive_entropy",
    "wildcard_align",
    "wildcard_ctc_loss",
    "wildcard_posteriors",
    "word_ids",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"wildctc.{home}"), name)
            globals()[name] = value  # the next use finds it without this function
            return value
    raise AttributeError(f"module 'wildctc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load(folder: str | PathLike[str], *, trust_front_end: bool = False, revision: str | None = None) -> "Recognizer":
    """The recogniser of a run or of a model folder, on the CPU: `load("runs/ctc").transcribe("a.wav").text`.

    Args:
        folder: of the run or of the model, or user/model on the Hugging Face hub if there is no such folder. It may
            come from a stranger: nothing in it is run.
        trust_front_end: allow a front end that is no part of WildCTC (see `Recognizer.load`).
        revision: of a model on the hub: a branch, tag or commit; None for the newest.

    Returns:
        The recogniser.
    """
    from wildctc.recognizer.hub import download, is_hub_name
    from wildctc.recognizer.model import Recognizer  # here, so that who wants the loss does not wait for the rest

    place = download(str(folder), revision) if is_hub_name(folder) else folder
    return Recognizer.load(place, trust_front_end=trust_front_end)
