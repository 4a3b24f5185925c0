"""WildCTC: CTC training that tolerates transcripts which are not perfectly right, and finds out where they are not."""

from wildctc.criteria import CRITERIA, Criterion, EntropyDecay, EpochDecay, predictive_entropy
from wildctc.lattice.align import Alignment, Span, WildcardSpan, wildcard_align
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.feasibility import Infeasible, infeasible
from wildctc.lattice.functional import Posteriors, wildcard_ctc_loss, wildcard_posteriors
from wildctc.loss import WildcardCTCLoss
from wildctc.text import word_ids
from wildctc.version import __version__

__all__ = [
    "CRITERIA",
    "Alignment",
    "Criterion",
    "EntropyDecay",
    "EpochDecay",
    "Infeasible",
    "Posteriors",
    "Span",
    "WildcardCTCLoss",
    "WildcardSpan",
    "Wildcards",
    "__version__",
    "infeasible",
    "predictive_entropy",
    "wildcard_align",
    "wildcard_ctc_loss",
    "wildcard_posteriors",
    "word_ids",
]
