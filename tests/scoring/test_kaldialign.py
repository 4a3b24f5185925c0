"""Our intervals beside those of kaldialign, which computes them as Kaldi's compute-wer-bootci does."""

import numpy as np
import pytest

from wildctc.scoring.bootstrap import bootstrap_sums, percentile_interval
from wildctc.scoring.error_rates import score
from wildctc.scoring.hypotheses import Decoded

kaldialign = pytest.importorskip("kaldialign")


def test_the_interval_of_wer_is_that_of_kaldialign():
    rng = np.random.default_rng(0)
    references = [[f"w{rng.integers(30)}" for _ in range(rng.integers(3, 15))] for _ in range(300)]
    heard = [[word if rng.random() > 0.15 else f"w{rng.integers(30)}" for word in words] for words in references]
    theirs = kaldialign.bootstrap_wer_ci(references, heard, replications=4000)

    rows = zip(references, heard, strict=True)
    found = score([Decoded(str(i), " ".join(h), (" ".join(r),)) for i, (r, h) in enumerate(rows)])
    counts = np.array([[u.words.total, len(r)] for u, r in zip(found.utterances, references, strict=True)], float)
    drawn = bootstrap_sums(counts, 4000)
    low, high = percentile_interval(drawn[:, 0] / drawn[:, 1])
    assert found.wer == pytest.approx(theirs["wer"], abs=0.001)
    # theirs is the mean ± 1.96 deviations, ours are percentiles: the same for a distribution that is nearly normal
    assert (low, high) == pytest.approx((theirs["ci95min"], theirs["ci95max"]), abs=0.0015)
