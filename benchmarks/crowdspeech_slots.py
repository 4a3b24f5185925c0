"""Seven transcripts of each utterance, aligned into slots: how much of the truth do they hold? CrowdSpeech, dev-clean.

    python benchmarks/crowdspeech_slots.py --data CROWDSPEECH

All utterances go through the aligner. Word error rates against the publisher's text, after small letters and without
punctuation: of each annotator's transcript, of the nearest of the seven (one transcript chosen with the truth in view),
of the majority in every slot, and of the nearest path through the slots (word by word, with the truth in view). The
last is what a graph of the seven can reach at most.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from wildctc.disagreement.transcripts import read_annotated
from wildctc.errors import WildCTCError
from wildctc.lattice.slots import aligned_slots
from wildctc.scoring.error_rates import Errors, levenshtein, wer
from wildctc.scoring.nearest import nearest_writing
from wildctc.terminal import table
from wildctc.text.alternatives import Writings
from wildctc.text.normalisation import Normalizer
from wildctc.text.reader import Reader

NORMALIZER = Normalizer(lower=True, strip_punctuation=True)
_BUSY = 1000  # words, from which on an annotator's error rate means something


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="the folder with dev-clean-crowd.tsv")
    print(report(parser.parse_args().data))


def report(folder: Path) -> str:
    """Align all utterances, and compare the ways to make one text of seven.

    Args:
        folder: Where dev-clean-crowd.tsv and dev-clean-gt.txt are.

    Returns:
        A table.
    """
    columns = {"columns": ["utterance", "text", "annotator"], "header": True}
    crowd, _ = read_annotated(folder / "dev-clean-gt.txt", [folder / "dev-clean-crowd.tsv"], NORMALIZER, **columns)
    began = time.perf_counter()
    reader = Reader(NORMALIZER)
    found = [reader("", list(u.transcripts.values())) for u in crowd]
    seconds = time.perf_counter() - began
    truth = [u.reference for u in crowd]
    of_annotator: dict[str, Errors] = {}
    for u in crowd:
        for name, text in u.transcripts.items():
            of_annotator[name] = of_annotator.get(name, Errors()) + wer([u.reference], [text])
    one = sum(of_annotator.values(), Errors())
    busy = np.array([errors.rate for errors in of_annotator.values() if errors.reference >= _BUSY])
    best, middle, worst = np.quantile(busy, [0.05, 0.5, 0.95])
    nearest = [min(u.transcripts.values(), key=lambda text, u=u: wer([u.reference], [text]).total) for u in crowd]
    slots = [slot for writings in found if isinstance(writings, Writings) for slot in writings.slots]
    several = [len(slot.alternatives) for slot in slots if len(slot.alternatives) > 1]
    rows = [
        ["one transcript, the mean of all", one],
        ["the nearest of the seven", wer(truth, nearest)],
        ["the majority in each slot", wer(truth, [majority(u.transcripts.values()) for u in crowd])],
        ["the nearest path through the slots", wer(truth, [path(w, t) for w, t in zip(found, truth, strict=True)])],
    ]
    lines = [[name, f"{e.rate:.2%}", *(f"{n:,}" for n in _edits(e))] for name, e in rows]
    return "\n".join(
        [
            f"{len(crowd):,} utterances, {sum(len(u.transcripts) for u in crowd):,} transcripts, aligned in "
            f"{seconds:.1f} s: {len(slots):,} slots, {len(several):,} of them with alternatives, "
            f"{sum(several) / len(several):.2f} each on average",
            f"annotators with at least {_BUSY:,} words: {len(busy)}; "
            f"their WER: best 5% {best:.2%}, median {middle:.2%}, worst 5% {worst:.2%}",
            "",
            table(["", "WER", "errors", "substituted", "inserted", "deleted"], lines),
        ]
    )


def _edits(errors: Errors) -> tuple[int, int, int, int]:
    return errors.total, errors.substitutions, errors.insertions, errors.deletions


def majority(transcripts: Iterable[str]) -> str:
    """The most frequent word of each slot; of equally frequent ones, that of the earliest transcript."""
    slots = aligned_slots([[(word,) for word in text.split()] for text in transcripts])
    return " ".join(word for slot in slots for word in max(slot, key=lambda words, slot=slot: slot[words]))


def path(writings: str | Writings, truth: str) -> str:
    """The writing that is nearest to the truth."""
    if isinstance(writings, str):
        return writings
    return writings.choose(nearest_writing(writings, truth.split(), levenshtein().distance))


if __name__ == "__main__":
    try:
        main()
    except WildCTCError as error:
        raise SystemExit(f"crowdspeech_slots: {error}") from None
