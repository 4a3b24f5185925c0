"""VoxPopuli: asr_{train,dev,test}.tsv of one language, and a folder of audio for each year."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from wildctc.corpora.utterance import SPLITS, Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_rows

_AUDIO = (".ogg", ".wav", ".flac", ".mp3")


def read(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read the transcribed part of one language.

    Args:
        source: The folder with the tables, asr_train.tsv or train.tsv. Their columns are id, normalized_text or
            raw_text, and perhaps speaker_id and gender. The audio of an id is <year>/<id>.ogg, or a file of this name
            anywhere in the folder.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    names = [(split, source / name) for split in SPLITS for name in (f"asr_{split}.tsv", f"{split}.tsv")]
    tables = [(split, path) for split, path in names if path.is_file()]
    if not tables:
        raise WildCTCError(
            f"no asr_train.tsv, asr_dev.tsv or asr_test.tsv in {source}; give the folder of one language"
        )

    @cache
    def anywhere() -> dict[str, Path]:
        return {path.stem: path for path in sorted(source.rglob("*")) if path.suffix.lower() in _AUDIO}

    for split, path in tables:
        for line, row in try_rows(path):
            if isinstance(row, RowError):
                yield bad_row(row)
                continue
            text = row.get("normalized_text") or row.get("raw_text")
            if "id" not in row or text is None:
                yield bad_row(RowError(path, line, "no id, or neither normalized_text nor raw_text"))
                continue
            id, speaker = str(row["id"]), row.get("speaker_id")
            audio = source / id[:4] / f"{id}.ogg"
            if not audio.is_file():
                audio = anywhere().get(id, audio)
            fields = (("gender", row["gender"]),) if row.get("gender") else ()
            known = None if speaker in (None, "None") else str(speaker)
            yield Utterance(id, audio, text, known, split=split, language=source.resolve().name, fields=fields)
