"""FLEURS: <language>/{train,dev,test}.tsv and <language>/audio/{train,dev,test}/*.wav."""

from collections.abc import Iterator
from pathlib import Path

from wildctc.corpora.utterance import SPLITS, Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_lines

_COLUMNS = 7  # sentence, file, raw transcription, normalised transcription, its characters, samples, gender


def read(source: Path, language: str | None = None) -> Iterator[Utterance | UtteranceError]:
    """Read FLEURS.

    The text is the normalised transcription: lower case, without punctuation. A sentence is read by several speakers,
    who are not named, so the id of an utterance consists of its sentence and its file.

    Args:
        source: The folder of one language, or a folder with several.
        language: Which of several, such as hi_in.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    folder = _folder(source, language)
    for split in SPLITS:
        path = folder / f"{split}.tsv"
        for line, row in try_lines(path) if path.is_file() else ():
            fields = [] if isinstance(row, RowError) else row.split("\t")
            if isinstance(row, RowError) or len(fields) != _COLUMNS:
                wrong = RowError(path, line, f"not {_COLUMNS} columns as in FLEURS: {len(fields)}")
                yield bad_row(row if isinstance(row, RowError) else wrong)
                continue
            sentence, name, _, text, *_ = fields
            id, audio = f"{sentence}-{Path(name).stem}", folder / "audio" / split / name
            yield Utterance(id, audio, text, split=split, language=folder.name)


def _folder(source: Path, language: str | None) -> Path:
    if _has_tables(source):
        if language not in (None, source.name):
            raise WildCTCError(f"{source} is the folder of one language, not of several with {language} among them")
        return source
    root = source / "data" if (source / "data").is_dir() else source  # as in the hub's repository
    found = {path.name: path for path in sorted(root.iterdir()) if _has_tables(path)} if root.is_dir() else {}
    if not found:
        raise WildCTCError(f"no train.tsv in {source} or in a folder in it")
    if language is None and len(found) == 1:
        [language] = found
    if language not in found:
        raise WildCTCError(f"choose a language of {source} with --language: {', '.join(found)}")
    return found[language]


def _has_tables(folder: Path) -> bool:
    return any((folder / f"{split}.tsv").is_file() for split in SPLITS)
