"""LibriSpeech: <subset>/<speaker>/<chapter>/ with FLAC files and one transcript file per chapter."""

from collections.abc import Iterator
from pathlib import Path

from wildctc.corpora.manifest import split_of
from wildctc.corpora.utterance import Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_lines


def read(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read all train-, dev- and test- subsets.

    Args:
        source: The directory LibriSpeech, or the directory that contains it.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    root = source / "LibriSpeech" if (source / "LibriSpeech").is_dir() else source
    subsets = [path for path in sorted(root.iterdir()) if path.is_dir() and split_of(path.name)]
    if not subsets:
        raise WildCTCError(f"no subset such as train-clean-100 in {root}")
    for subset in subsets:
        for chapter in sorted(path for path in subset.glob("*/*") if path.is_dir()):
            yield from _chapter(chapter, subset.name)


def _chapter(chapter: Path, subset: str) -> Iterator[Utterance | UtteranceError]:
    speaker = chapter.parent.name
    texts: dict[str, str] = {path.stem: "" for path in chapter.glob("*.flac")}
    transcripts = chapter / f"{speaker}-{chapter.name}.trans.txt"
    if transcripts.is_file():
        for _, line in try_lines(transcripts):
            if isinstance(line, RowError):
                yield bad_row(line, line.key)
                texts.pop(line.key, None)
            else:
                id, _, text = line.strip().partition(" ")
                texts[id] = text
    for id, text in sorted(texts.items()):
        yield Utterance(id, chapter / f"{id}.flac", text, speaker, split=subset)
