"""RESPIN: folders such as train_hi_small with WAV files and a meta_train_hi_small.json that has their texts."""

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wildctc.corpora.manifest import split_of
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError

LANGUAGES = ("bh", "bn", "ch", "hi", "kn", "mg", "mr", "mt", "te")


def read(source: Path, language: str | None = None) -> Iterator[Utterance | UtteranceError]:
    """Read the sets of one language.

    The name of a set is that of its meta file; the names of folders do not matter (archives add IISc_RESPIN_).
    Punctuation that stands alone, as in "… ?", is removed, because it is not a word.

    Args:
        source: The folder of a set, or a folder with several.
        language: Which of several, such as hi.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    sets = _sets(source)
    languages = sorted({code for name in sets for code in name.split("_") if code in LANGUAGES})
    if language is None and len(languages) == 1:
        [language] = languages
    if language not in languages:
        raise WildCTCError(f"choose a language of {source} with --language: {', '.join(languages)}")
    for name, meta in sets.items():
        if language in name.split("_"):
            yield from _set(name, meta, language)


def _sets(source: Path) -> dict[str, Path]:
    """Find the meta file of each set, by the name of the set, in the highest folders that have any."""
    for depth in ("", "*/", "*/*/", "*/*/*/"):
        found = {path.stem.removeprefix("meta_"): path for path in sorted(source.glob(f"{depth}meta_*.json"))}
        sets = {name: path for name, path in found.items() if split_of(name)}
        if sets:
            return sets
    raise WildCTCError(f"no meta_train_….json in {source} or in a folder in it")


def _set(name: str, meta: Path, language: str) -> Iterator[Utterance | UtteranceError]:
    try:
        rows: dict[str, dict[str, Any]] = json.loads(meta.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WildCTCError(f"cannot read {meta}: {error}") from None
    if not isinstance(rows, dict):
        raise WildCTCError(f"{meta}: not as in RESPIN: not an object with a row for each utterance")
    for id, row in rows.items():
        try:
            text = " ".join(word for word in row["text"].split() if not _is_punctuation(word))
            speaker = None if row.get("speaker_id") is None else str(row["speaker_id"])
            yield Utterance(id, meta.parent / row["wav_path"], text, speaker, split=name, language=language)
        except (KeyError, TypeError, AttributeError) as error:
            yield UtteranceError(Utterance(id, meta), f"not as in RESPIN: {error!r}")


def _is_punctuation(word: str) -> bool:
    return all(unicodedata.category(char)[0] == "P" for char in word)
