"""Kaldi data directories: wav.scp, text, and where they exist segments, utt2spk and utt2dur."""

import logging
from collections.abc import Iterator
from pathlib import Path

from ..errors import WildCTCError
from .manifest import Utterance, split_of

_log = logging.getLogger(__name__)


def utterances(source: Path) -> Iterator[Utterance]:
    """source: a data directory, or one that holds several (train, dev, test; the name begins with the split's)."""
    if (source / "wav.scp").is_file():
        yield from _data_dir(source, source.name if split_of(source.name) else "train")
        return
    found = sorted(path.parent for path in source.glob("*/wav.scp"))
    if not found:
        raise WildCTCError(f"no wav.scp in {source} or in a directory in it")
    for directory in found:
        if split_of(directory.name) is None:
            _log.warning("skipped %s: its name begins with none of train, dev, test", directory)
        else:
            yield from _data_dir(directory, directory.name)


def _data_dir(directory: Path, subset: str) -> Iterator[Utterance]:
    wavs, texts = _table(directory / "wav.scp"), _table(directory / "text")
    speakers = _table(directory / "utt2spk", optional=True)
    segments = _segments(directory) or {id: (id, 0.0, duration) for id, duration in _durations(directory, wavs)}
    for id in texts.keys() - segments.keys():
        segments[id] = "", 0.0, 0.0
    for id, (recording, start, duration) in sorted(segments.items()):
        # A recording that wav.scp does not have becomes a missing file, which is reported like any other.
        audio = _audio_path(directory, wavs.get(recording, f"{recording or id} (not in wav.scp)"))
        yield Utterance(id, audio, texts.get(id, ""), speakers.get(id), duration, start, split=subset)


def _table(path: Path, *, optional: bool = False) -> dict[str, str]:
    """A Kaldi table: a key, white space, the rest of the line."""
    if optional and not path.exists():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise WildCTCError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WildCTCError(f"cannot read {path}: not UTF-8 at byte {error.start}") from None
    table: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if key in table:
            raise WildCTCError(f"{path}:{number}: {key!r} occurs twice")
        if key:
            table[key] = value.strip()
    return table


def _audio_path(directory: Path, value: str) -> Path:
    if value.endswith("|"):
        raise WildCTCError(
            f"{directory / 'wav.scp'}: {value!r} is a command, and commands are not run; "
            "write its output to an audio file and name that"
        )
    # Kaldi means the directory that its scripts were run from, which is usually two above data/train.
    places = [Path.cwd(), directory, *list(directory.parents)[:2]]
    return next((place / value for place in places if (place / value).is_file()), directory / value)


def _segments(directory: Path) -> dict[str, tuple[str, float, float]]:
    """Utterance → recording, start and duration in seconds; an end of −1 means that of the recording."""
    path = directory / "segments"
    segments = {}
    for id, value in _table(path, optional=True).items():
        try:
            recording, start, end = value.split()
            seconds = float(end) - float(start) if float(end) >= 0 else 0.0
            if float(start) < 0 or (seconds <= 0 and float(end) >= 0):
                raise ValueError
        except ValueError:
            raise WildCTCError(f"{path}: {id}: expected a recording, a start and a later end, got {value!r}") from None
        segments[id] = recording, float(start), seconds
    return segments


def _durations(directory: Path, ids: dict[str, str]) -> Iterator[tuple[str, float]]:
    table = _table(directory / "utt2dur", optional=True)
    for id in ids:
        try:
            yield id, float(table.get(id, 0.0))
        except ValueError:
            raise WildCTCError(f"{directory / 'utt2dur'}: {id}: {table[id]!r} is not a number") from None
