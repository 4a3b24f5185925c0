"""Where does the bypass probability go, and who gains from wildcards?

    wildctc probe RUN MANIFEST -o a.jsonl
    python benchmarks/bypassed.py a.jsonl b.jsonl
    python benchmarks/bypassed.py --results results/iban/iban --manifest test.jsonl.gz --criteria otc-t otc-tw

The first asks probe files: how much is bypassed, in which characters, in which utterances. The second splits the test
errors of kept runs. Both split utterances into quarters by their room: encoder frames for a character of the
transcript. CTC needs at least one, so a transcript with little room can be aligned in few ways, whether or not they
fit the audio.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from wildctc.corpora.manifest import load_manifest
from wildctc.errors import WildCTCError
from wildctc.experiments.results import RunResult
from wildctc.probe.records import ProbedUtterance, read_probe
from wildctc.terminal import table

QUARTERS = ("least room", "second", "third", "most room")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probes", nargs="*", type=Path, metavar="PROBE", help="files of wildctc probe")
    parser.add_argument("--results", type=Path, metavar="DIR", help="kept results: DIR/<criterion>/seed<k>.json")
    parser.add_argument("--manifest", help="the test set, for --results")
    parser.add_argument("--criteria", nargs="+", default=["otc-t", "otc-tw"], help="default: otc-t otc-tw")
    parser.add_argument("--frame-rate", type=float, default=20.83, help="of the encoder, for --results (default 20.83)")
    options = parser.parse_args()
    if not options.probes and not options.results:
        parser.error("give probe files, or --results")
    if options.results and not options.manifest:
        parser.error("--results needs --manifest, the test set")
    if options.probes:
        print(of_probes(options.probes))
    if options.results:
        print(of_results(options.results, options.manifest, options.criteria, options.frame_rate))


def quarters(room: np.ndarray) -> np.ndarray:
    """0 to 3 for each."""
    return np.searchsorted(np.quantile(room, [0.25, 0.5, 0.75]), room)


def of_probes(paths: list[Path]) -> str:
    rows = []
    for path in paths:
        settings, read = read_probe(path)
        utterances = [u for u in read if u.tokens]
        room = np.array([u.duration * settings["frame_rate"] / len(u.tokens) for u in utterances])
        mean = np.array([np.mean([t.bypass for t in u.tokens]) for u in utterances])
        of_quarter = [f"{mean[quarters(room) == q].mean():.1%}" for q in range(4)]
        words = np.array([w.bypass for u in utterances for w in u.words])
        tokens = np.array([t.bypass for u in utterances for t in u.tokens])
        rows.append([path.stem, f"{tokens.mean():.1%}", f"{(words > 0.5).mean():.1%}", *of_quarter, most(utterances)])
    header = ["probe", "characters", "words > 0.5", *QUARTERS, "bypassed most"]
    return table(header, rows) + "\n\ncharacters: mean bypass probability, over all and by quarter of utterances"


def most(utterances: list[ProbedUtterance], least: int = 100) -> str:
    """The characters that are bypassed most, of those that are there often enough to say."""
    mass: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for token in (t for u in utterances for t in u.tokens):
        mass[token.text] += token.bypass
        count[token.text] += 1
    rates = sorted(((mass[c] / n, c) for c, n in count.items() if n >= least), reverse=True)
    return " ".join(f"{c} {rate:.0%}" for rate, c in rates[:6])


def of_results(folder: Path, manifest: str, criteria: list[str], frame_rate: float) -> str:
    room_of = {u.id: u.duration * frame_rate / max(1, len(u.text)) for u in load_manifest(manifest)}
    rows = []
    for criterion in criteria:
        changes = []
        for path in sorted((folder / criterion).glob("seed*.json")):
            if not (control := folder / "ctc" / path.name).exists():
                continue
            plain, wild = (next(iter(RunResult.load(p).tests.values())) for p in (control, path))
            quarter = quarters(np.array([room_of[id] for id in plain.ids]))
            changes.append([rate(wild.words[quarter == q]) - rate(plain.words[quarter == q]) for q in range(4)])
        rows += [[criterion, str(len(changes)), *(f"{100 * c:+.1f}" for c in np.mean(changes, 0))]] if changes else []
    return table(["change of WER", "seeds", *QUARTERS], rows) + "\n\nin points against plain CTC, means over seeds"


def rate(words: np.ndarray) -> float:
    return float(words[:, :3].sum() / words[:, 3].sum())


if __name__ == "__main__":
    try:
        main()
    except WildCTCError as error:
        raise SystemExit(f"bypassed: {error}") from None
