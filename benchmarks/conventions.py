"""Do the errors of a machine's transcripts repeat? Which of them are only another way to write what was said?

    python benchmarks/conventions.py MACHINE HUMAN --machine-hyp HYP --human-hyp HYP

MACHINE and HUMAN: training manifests with the same utterances, written by a machine and by a person. A word of the
machine is a convention if it occurs at least LEAST times there, and the person writes the same other words for it in at
least SHARE of them (*am* for *a m*). HYP: what a model that was trained on the text of the machine, or of the person,
wrote for a test set, with the person's text as reference (`wildctc decode`). The conventions are found in the training
text alone. Then each is rewritten as the person would write it, in the machine's training text and in both hypotheses:
the errors that disappear were conventions. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rapidfuzz.distance import Levenshtein

from wildctc.cleaning.judgement import read_texts
from wildctc.errors import WildCTCError
from wildctc.scoring.error_rates import wer
from wildctc.scoring.hypotheses import read_hyp_file

LEAST, SHARE = 5, 0.8
SHOWN = 20  # conventions that are listed, the most frequent first


def writings(machine: Sequence[str], person: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word of the machine with what the person wrote for it; a word in a longer change has no writing: ""."""
    old: list[str] = []
    new: list[str] = []
    for edit in Levenshtein.opcodes(machine, person):
        before, after = machine[edit.src_start : edit.src_end], person[edit.dest_start : edit.dest_end]
        if edit.tag != "equal":
            old, new = [*old, *before], [*new, *after]
            continue
        yield from _changed(old, new)
        old, new = [], []
        yield from zip(before, before, strict=True)
    yield from _changed(old, new)


def _changed(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    if len(old) == len(new):
        yield from zip(old, new, strict=True)
    else:
        yield from ((word, " ".join(new) if len(old) == 1 else "") for word in old)


def find_conventions(pairs: Iterable[tuple[str, str]], least: int, share: float) -> dict[str, tuple[str, int, int]]:
    """Find the machine's words that the person nearly always writes otherwise, in the same way.

    Args:
        pairs: The machine's text and the person's text of each utterance.
        least: How often a word must occur in the machine's text.
        share: The least share of them that the person writes in the same other way.

    Returns:
        Word → what the person writes, how often, and how often the word occurs; the most frequent first.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for machine, person in pairs:
        for word, writing in writings(machine.split(), person.split()):
            counts[word][writing] += 1
    found = {}
    for word, of in counts.items():
        writing, times = max(((w, n) for w, n in of.items() if w), key=lambda pair: pair[1], default=("", 0))
        if writing != word and of.total() >= least and times >= share * of.total():
            found[word] = (writing, times, of.total())
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def rewrite(text: str, conventions: Mapping[str, tuple[str, int, int]]) -> str:
    """Write the conventions of the machine as the person would."""
    return " ".join(conventions[word][0] if word in conventions else word for word in text.split())


def errors(references: Sequence[str], texts: Sequence[str], conventions: Mapping[str, tuple[str, int, int]]) -> dict:
    """Word errors as written, and with the conventions written as the person would."""
    before, after = wer(references, texts), wer(references, [rewrite(text, conventions) for text in texts])
    return {"words": before.reference, "errors": before.total, "wer": round(before.rate, 5)} | {
        "errors_left": after.total,
        "wer_left": round(after.rate, 5),
    }


def report(options: argparse.Namespace) -> dict[str, object]:
    machine, person = read_texts(options.machine), read_texts(options.human)
    pairs = [(text, person[id]) for id, text in machine.items() if id in person]
    conventions = find_conventions(pairs, options.least, options.share)
    result: dict[str, object] = {"least": options.least, "share": options.share, "conventions": len(conventions)}
    result["shown"] = {word: list(of) for word, of in list(conventions.items())[:SHOWN]}
    result["train"] = errors([p for _, p in pairs], [m for m, _ in pairs], conventions)
    if options.machine_hyp and options.human_hyp:
        found = {}
        for name, path in (("machine", options.machine_hyp), ("human", options.human_hyp)):
            decoded = read_hyp_file(path)[0]
            found[name] = errors([d.references[0] for d in decoded], [d.text for d in decoded], conventions)
        gaps = [found["machine"][rate] - found["human"][rate] for rate in ("wer", "wer_left")]
        result["test"] = found | {"gap": round(gaps[0], 5), "gap_left": round(gaps[1], 5)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", type=Path)
    parser.add_argument("human", type=Path)
    parser.add_argument("--machine-hyp", type=Path, help="what the model that was trained on the machine's text wrote")
    parser.add_argument("--human-hyp", type=Path, help="what the model that was trained on the person's text wrote")
    parser.add_argument("--least", type=int, default=LEAST, help=f"default {LEAST}")
    parser.add_argument("--share", type=float, default=SHARE, help=f"default {SHARE}")
    try:
        print(json.dumps(report(parser.parse_args()), indent=1, ensure_ascii=False))
    except WildCTCError as error:
        raise SystemExit(f"conventions: {error}") from None


if __name__ == "__main__":
    main()
