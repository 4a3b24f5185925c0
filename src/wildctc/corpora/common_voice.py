"""Common Voice: <language>/{train,dev,test}.tsv and <language>/clips/*.mp3."""

from collections.abc import Iterator
from pathlib import Path

from wildctc.corpora.utterance import SPLITS, Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_rows


def read(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read the official splits.

    Args:
        source: The folder of one language, with the tables and clips/.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    tables = [(split, source / f"{split}.tsv") for split in SPLITS if (source / f"{split}.tsv").is_file()]
    if not tables:
        raise WildCTCError(f"no train.tsv, dev.tsv or test.tsv in {source}; give the folder of one language")
    for split, path in tables:
        for line, row in try_rows(path):
            if isinstance(row, RowError):
                yield bad_row(row)
            elif "path" not in row or "sentence" not in row:
                yield bad_row(RowError(path, line, "no path or no sentence"))
            else:
                name = row["path"] if Path(row["path"]).suffix else row["path"] + ".mp3"
                # the names of speakers are long hashes
                speaker, language = row.get("client_id", "")[:16] or None, row.get("locale")
                audio = source / "clips" / name
                yield Utterance(audio.stem, audio, row["sentence"], speaker, split=split, language=language)
