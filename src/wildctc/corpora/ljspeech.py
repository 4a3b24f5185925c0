"""LJSpeech: metadata.csv (id|text|normalised text, without a header) and wavs/."""

from collections.abc import Iterator
from pathlib import Path

from wildctc.corpora.utterance import Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_lines


def read(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read all utterances; the publisher has no splits, so all are training speech of one speaker.

    Args:
        source: The folder with metadata.csv and wavs/.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    path = source / "metadata.csv"
    if not path.is_file():
        raise WildCTCError(f"no metadata.csv in {source}")
    for line, text in try_lines(path):
        if isinstance(text, RowError):
            yield bad_row(text)
            continue
        cells = text.split("|")
        if len(cells) not in (2, 3):
            yield bad_row(RowError(path, line, f"not id|text|normalised text: {len(cells)} cells"), cells[0])
        else:
            yield Utterance(cells[0], source / "wavs" / f"{cells[0]}.wav", cells[-1] or cells[1], source.name)
