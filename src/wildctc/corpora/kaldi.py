"""Kaldi data directories: wav.scp and text; segments, utt2spk and utt2dur if they exist."""

import logging
import math
from collections.abc import Iterator
from pathlib import Path

from wildctc.corpora.manifest import split_of
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_lines

_log = logging.getLogger(__name__)
_Bad = dict[str, UtteranceError]  # by utterance


def read(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read one or several data directories.

    Args:
        source: A data directory, or a directory with several, whose names begin with train, dev or test.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    if (source / "wav.scp").is_file():
        yield from _data_dir(source, source.name if split_of(source.name) else "train")
        return
    found = sorted(path.parent for path in source.glob("*/wav.scp"))
    if not found:
        raise WildCTCError(f"no wav.scp in {source} or in a directory in it")
    for directory in found:
        if split_of(directory.name) is None:
            _log.warning("skipped %s: its name does not begin with train, dev or test", directory)
        else:
            yield from _data_dir(directory, directory.name)


def _data_dir(directory: Path, subset: str) -> Iterator[Utterance | UtteranceError]:
    bad: _Bad = {}
    wavs, texts = _table(directory / "wav.scp", bad), _table(directory / "text", bad)
    speakers = _table(directory / "utt2spk", bad)
    if (directory / "segments").exists() and (directory / "segments").stat().st_size > 0:
        segments = _segments(directory / "segments", bad)
    else:
        segments = {id: (id, 0.0, duration) for id, duration in _durations(directory / "utt2dur", wavs, bad)}
    for id in texts.keys() - segments.keys():
        segments[id] = "", 0.0, 0.0
    yield from bad.values()
    for id, (recording, start, duration) in sorted(segments.items()):
        if id in bad:
            continue
        # a recording that is not in wav.scp becomes a missing file, which is reported like any other
        audio = _audio_path(directory, wavs.get(recording, f"{recording or id} (not in wav.scp)"))
        yield Utterance(id, audio, texts.get(id, ""), speakers.get(id), duration, start, split=subset)


def _table(path: Path, bad: _Bad) -> dict[str, str]:
    """A Kaldi table: a key, white space, the rest of the line. Only wav.scp and text must be there."""
    if path.name not in ("wav.scp", "text") and not path.exists():
        return {}
    table: dict[str, str] = {}
    for number, line in try_lines(path):
        if isinstance(line, RowError):
            _reject(bad, line.key, path, line.reason)
            continue
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if key in table:
            _reject(bad, key, path, f"occurs twice in {path.name}: line {number}")
        table[key] = value.strip()
    return table


def _reject(bad: _Bad, id: str, path: Path, reason: str) -> None:
    bad.setdefault(id, UtteranceError(Utterance(id, path), reason))


def _audio_path(directory: Path, value: str) -> Path:
    if value.endswith("|"):
        raise WildCTCError(
            f"{directory / 'wav.scp'}: {value!r} is a command, and commands are not run; "
            "write its output to an audio file and name that"
        )
    # relative to the directory in which Kaldi's scripts were run, usually two above data/train
    places = [Path.cwd(), directory, *list(directory.parents)[:2]]
    return next((place / value for place in places if (place / value).is_file()), directory / value)


def _segments(path: Path, bad: _Bad) -> dict[str, tuple[str, float, float]]:
    """Utterance → recording, start and duration in seconds. An end of −1 is the end of the recording."""
    segments = {}
    for id, value in _table(path, bad).items():
        try:
            recording, start, end = value.split()
            seconds = float(end) - float(start) if float(end) >= 0 else 0.0
            if not (0 <= float(start) < math.inf and (0 < seconds < math.inf or float(end) < 0)):
                raise ValueError
            segments[id] = recording, float(start), seconds
        except ValueError:
            _reject(bad, id, path, f"expected a recording, a start and a later end: {value}")
    return segments


def _durations(path: Path, ids: dict[str, str], bad: _Bad) -> Iterator[tuple[str, float]]:
    table = _table(path, bad)
    for id in ids:
        try:
            seconds = float(table.get(id, 0.0))
            if not 0 <= seconds < math.inf:
                raise ValueError
            yield id, seconds
        except ValueError:
            _reject(bad, id, path, f"no duration: {table[id]}")
