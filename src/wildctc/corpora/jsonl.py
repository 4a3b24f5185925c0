"""Plain JSON lines: a manifest with a `split` for each row, or one file per split."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import WildCTCError
from .manifest import Utterance, parse_row, read_rows, split_of


def utterances(source: Path) -> Iterator[Utterance]:
    """source: a manifest, or a directory with manifest.jsonl or with train.jsonl, dev.jsonl, test.jsonl.

    Rows are as in `load_manifest`. A row without a split belongs to the one its file is named after, or to train. In a
    directory with a file per split, one whose name says nothing may be anything, and its rows are refused.
    """
    for path in _manifests(source):
        nameless = path == source or path.stem.startswith("manifest")
        own = "train" if nameless and split_of(path.stem) is None else path.stem
        for line, row in read_rows(path):
            for utterance in parse_row(row, path, line):
                yield replace(utterance, id=utterance.id or utterance.audio.stem, split=utterance.split or own)


def _manifests(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    paths = sorted(source.glob("manifest.jsonl")) or sorted(source.glob("*.jsonl"))
    if not paths:
        raise WildCTCError(f"no manifest.jsonl in {source}")
    return paths
