"""`wildctc prepare`: from a corpus as its publisher ships it to one checked manifest per split."""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import WildCTCError
from ..text import Normalizer
from . import jsonl, kaldi, librispeech
from .audio import UtteranceError, check_audio
from .manifest import Utterance, split_of, write_cuts

_log = logging.getLogger(__name__)

# Each yields its utterances as it finds them: text not normalised, duration 0 if it is not given, `split` the name of
# the subset that the utterance comes from.
SOURCES: dict[str, Callable[[Path], Iterator[Utterance]]] = {
    "jsonl": jsonl.utterances,
    "kaldi": kaldi.utterances,
    "librispeech": librispeech.utterances,
}

Checked = tuple[Utterance, int, int]  # with the sampling rate and the number of samples of its file


class Rejects:
    """Collects the utterances that cannot be used: each is logged once, and too many stop the run.

    >>> rejects = Rejects(limit=0.5)
    >>> rejects.add(UtteranceError(Utterance("utt1", Path("a.wav")), "empty transcript"))
    >>> rejects.check(total=2)
    >>> rejects.check(total=1)
    Traceback (most recent call last):
    wildctc.errors.WildCTCError: 1 of 1 utterances cannot be used, ...; the first: utt1 (a.wav): empty transcript...
    """

    def __init__(self, limit: float = 0.01) -> None:
        self.limit = limit
        self.errors: dict[str, UtteranceError] = {}

    def add(self, error: UtteranceError) -> None:
        if str(error) not in self.errors:
            self.errors[str(error)] = error
            _log.warning("left out: %s", error)

    def check(self, total: int) -> None:
        """Raises WildCTCError if more than `limit` of `total` utterances were rejected."""
        if len(self.errors) > self.limit * total:
            raise WildCTCError(
                f"{len(self.errors)} of {total} utterances cannot be used, more than the limit of {self.limit:.2%}; "
                f"the first: {next(iter(self.errors))}. Repair them or raise the limit"
            )


def prepare(
    source: str, in_dir: str | Path, out_dir: str | Path, normalizer: Normalizer, limit: float = 0.01
) -> dict[str, list[Utterance]]:
    """Reads a corpus, checks every row, and writes OUT/{train,dev,test}.jsonl.gz (lhotse cuts).

    A split that comes from several subsets (test-clean, test-other) gets a file for each of them too. Bad rows are
    logged, listed in OUT/rejected.jsonl and left out; above `limit` of all rows nothing is written and a WildCTCError
    raised. Returns what each file holds, by its name.

    >>> import soundfile, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     soundfile.write(f"{folder}/a.wav", [0.0] * 16000, 16000)
    ...     row = {"id": "a", "audio": "a.wav", "text": "Selamat pagi", "split": "dev"}
    ...     _ = Path(folder, "manifest.jsonl").write_text(json.dumps(row))
    ...     files = prepare("jsonl", folder, f"{folder}/out", Normalizer(lower=True))
    >>> [(name, u.id, u.text, u.duration) for name, utterances in files.items() for u in utterances]
    [('dev', 'a', 'selamat pagi', 1.0)]
    """
    if source not in SOURCES:
        raise WildCTCError(f"unknown source {source!r}; known: {', '.join(SOURCES)}")
    if not Path(in_dir).exists():
        raise WildCTCError(f"no such file or directory: {in_dir}")
    subsets: dict[str, list[Checked]] = defaultdict(list)
    rejects, seen, total = Rejects(limit), set[str](), 0
    for utterance in SOURCES[source](Path(in_dir).absolute()):
        total += 1
        try:
            checked = _check(utterance, normalizer, seen)
            subsets[utterance.split or "train"].append(checked)
        except UtteranceError as error:
            rejects.add(error)
    if total == 0:
        raise WildCTCError(f"no utterances in {in_dir}: is it a {source} corpus?")
    rejects.check(total)
    return _write(_files(subsets), rejects, Path(out_dir))


def _check(utterance: Utterance, normalizer: Normalizer, seen: set[str]) -> Checked:
    split = split_of(utterance.split or "train")
    if split is None:
        raise UtteranceError(utterance, f"split {utterance.split!r} is none of train, dev, test")
    if utterance.id in seen:
        raise UtteranceError(utterance, "its id occurs twice")
    seen.add(utterance.id)
    checked = check_audio(replace(utterance, text=normalizer(utterance.text), split=split))
    if not checked[0].text:
        raise UtteranceError(utterance, "empty transcript")
    return checked


def _files(subsets: dict[str, list[Checked]]) -> dict[str, list[Checked]]:
    files: dict[str, list[Checked]] = defaultdict(list)
    for subset, utterances in subsets.items():
        files[split_of(subset) or "train"] += utterances
    for split in list(files):
        parts = {subset: part for subset, part in subsets.items() if split_of(subset) == split}
        if len(parts) > 1:
            files |= {subset: part for subset, part in parts.items() if subset not in files}
    return files


def _write(files: dict[str, list[Checked]], rejects: Rejects, out_dir: Path) -> dict[str, list[Utterance]]:
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, utterances in files.items():
            write_cuts(out_dir / f"{name}.jsonl.gz", utterances)
        rows = [{"id": e.id, "audio": str(e.path), "reason": e.reason} for e in rejects.errors.values()]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out_dir / "rejected.jsonl").write_text(lines, encoding="utf-8")
    except OSError as error:
        raise WildCTCError(f"cannot write {error.filename or out_dir}: {error.strerror}") from None
    return {name: [utterance for utterance, _, _ in utterances] for name, utterances in files.items()}
