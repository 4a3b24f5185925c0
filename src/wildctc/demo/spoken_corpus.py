"""Make the demo's corpus: who says what, how it is written down, and which words are wrong on purpose."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from wildctc.corpora.preparation import prepare
from wildctc.corpora.synthetic import synthesize
from wildctc.demo.sentences import VARIANTS, sentences
from wildctc.demo.simulated_annotators import Annotator, Written, spoil
from wildctc.files import make_folder, write_text
from wildctc.json_lines import read_rows
from wildctc.text.normalisation import Normalizer

_ANNOTATORS = ("ada", "ben", "cleo", "dan", "eve", "finn", "gus", "hana")
VALIDATORS = ("ines", "jon", "kim")  # they write down the test set a second, third and fourth time
WRONG = 0.05  # the share of training words that are made wrong on purpose


@dataclass(frozen=True)
class CorpusSize:
    """The size of a corpus.

    Attributes:
        train: Training sentences.
        dev: Validation sentences.
        test: Test sentences.
        voices: Voices of the synthesiser.
    """

    train: int
    dev: int
    test: int
    voices: int


def make_corpus(folder: Path, size: CorpusSize, seed: int = 0, processes: int = 2) -> None:
    """Write a corpus: audio/, {train,dev,test}.jsonl.gz, truth.jsonl and, for the test set, validators/NAME.jsonl.

    Args:
        folder: Where to write it.
        size: How many sentences and voices.
        seed: Decides sentences, voices, annotators and errors.
        processes: Processes that synthesise speech.
    """
    make_folder(folder)
    splits = ["train"] * size.train + ["dev"] * size.dev + ["test"] * size.test
    spoken = sentences(len(splits), seed)
    ids = [f"{split}-{n:04d}" for n, split in enumerate(splits, start=1)]
    rng = random.Random(f"annotation {seed}")
    people = [Annotator(name, seed) for name in _ANNOTATORS]
    written = [rng.choice(people).write(sentence, rng) for sentence in spoken]
    written[: size.train] = spoil(written[: size.train], WRONG, rng)
    rows = zip(ids, splits, spoken, written, strict=True)
    content = [{"id": i, "split": split, "spoken": said, "text": text(words)} for i, split, said, words in rows]
    _write_rows(folder / "sentences.jsonl", content)
    _write_rows(
        folder / "truth.jsonl",
        [{"id": i, "words": [asdict(word) for word in words]} for i, words in zip(ids, written, strict=True)],
    )
    for name in VALIDATORS:
        validator = Annotator(name, seed)
        rows_of = [
            {"id": i, "text": text(validator.write(said, rng))}
            for i, split, said in zip(ids, splits, spoken, strict=True)
            if split == "test"
        ]
        _write_rows(make_folder(folder / "validators") / f"{name}.jsonl", rows_of)
    manifest = synthesize(folder / "sentences.jsonl", folder, voices=size.voices, seed=seed, processes=processes)
    prepare("jsonl", manifest, folder, Normalizer())


def read_truth(folder: Path) -> dict[str, list[Written]]:
    """Read what was said and what was written, word by word.

    Args:
        folder: The corpus.

    Returns:
        Utterance id → its words.
    """
    return {row["id"]: [Written(**word) for word in row["words"]] for _, row in read_rows(folder / "truth.jsonl")}


def text(words: Sequence[Written]) -> str:
    """Join written words to a transcript.

    Args:
        words: The words.

    Returns:
        The transcript.
    """
    return " ".join(word.written for word in words)


def example(folder: Path) -> dict[str, str]:
    """Choose the test sentence that people wrote in the most different ways.

    Args:
        folder: The corpus.

    Returns:
        The sentence as it was "said", as the "reference", and as each validator wrote it.
    """
    written = {name: _texts(folder / "validators" / f"{name}.jsonl") for name in VALIDATORS}
    words = read_truth(folder)
    id = max(written[VALIDATORS[0]], key=lambda id: len({texts[id] for texts in written.values()} | {text(words[id])}))
    said = " ".join(word.spoken for word in words[id])
    return {"said": said, "reference": text(words[id])} | {name: texts[id] for name, texts in written.items()}


def _texts(path: Path) -> dict[str, str]:
    return {row["id"]: row["text"] for _, row in read_rows(path)}


def spellings(sentence: str) -> list[str]:
    """List all accepted ways to write a sentence.

    Args:
        sentence: The sentence as it was said.

    Returns:
        The sentences, the spoken form first.

    >>> spellings("a grey colour")
    ['a grey colour', 'a grey color', 'a gray colour', 'a gray color']
    """
    return [" ".join(words) for words in product(*((w, *VARIANTS.get(w, ())) for w in sentence.split()))]


def _write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
