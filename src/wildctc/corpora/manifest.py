"""Manifests: the list of utterances that every command works on.

A row is a lhotse cut or a plain JSON object. Both are parsed here and not by lhotse, whose import takes seconds; a test
checks with lhotse what `write_cuts` writes.
"""

import contextlib
import gzip
import io
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, read_rows
from wildctc.text.alternatives import has_grammar, parse_text

if TYPE_CHECKING:
    from wildctc.audio.sound_files import CheckedAudio
_LOOKED_AT = 100  # utterances, one of which must exist if --audio-root is given
_log = logging.getLogger(__name__)
_LARGEST_WEIGHT = 100  # of a word, as a natural logarithm; the published schedules begin at -25
_LONGEST_FIELD = 200  # characters of a further field that is kept
_KNOWN = {
    "id", "audio", "audio_filepath", "text", "speaker", "duration", "start", "offset", "channel", "split", "language",
    "weights", "texts",
}  # fmt: skip
_SPLITS = {"train": "train", "dev": "dev", "val": "dev", "test": "test", "eval": "test"}


def load_manifest(path: str | Path, split: str | None = None, audio_root: str | Path | None = None) -> list[Utterance]:
    """Read the utterances of a manifest, or of one split of it.

    Args:
        path: .jsonl or .jsonl.gz. Each row is a lhotse cut or a plain object with `audio` (relative to the folder of
            the manifest) and `text`, optionally `id, speaker, split, language, duration, start, channel, weights,
            texts`. NeMo's `audio_filepath` and `offset` are read too. A row without an id is named after its audio.
        split: Only utterances of this split.
        audio_root: The folder that the audio has been moved to since the manifest was written.

    Returns:
        The utterances, in the order of the manifest. Missing durations are read from the headers of the audio files.

    Raises:
        WildCTCError: The manifest cannot be read, or has no such utterances.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "manifest.jsonl")
    ...     _ = path.write_text('{"audio": "clips/a.wav", "text": "hello", "duration": 1.5, "split": "dev"}')
    ...     [utterance] = load_manifest(path, split="dev")
    >>> utterance.id, utterance.audio.name, utterance.duration
    ('a', 'a.wav', 1.5)
    """
    utterances = [utterance for _, found in read_utterances(path) for utterance in found]
    chosen = [u for u in utterances if split is None or u.split == split]
    if not chosen:
        raise WildCTCError(_nothing(Path(path), split, utterances))
    if audio_root is not None:
        chosen = move_audio_of(chosen, Path(audio_root), path)
    return _with_durations(chosen)


def read_utterances(path: str | Path) -> Iterator[tuple[dict[str, Any], list[Utterance]]]:
    """Read the rows of a manifest.

    Args:
        path: .jsonl or .jsonl.gz.

    Yields:
        Each row, and its utterances, which all have ids.

    Raises:
        WildCTCError: A row cannot be used, or an id occurs twice.
    """
    path, ids = Path(path), set[str]()
    for line, row in read_rows(path):
        found = []
        for utterance in parse_row(row, path, line):
            if not utterance.id:
                stem = utterance.audio.stem
                utterance = replace(utterance, id=stem if stem not in ids else f"{stem}-{line}")
            if utterance.id in ids:
                raise WildCTCError(f"{path}:{line}: id {utterance.id!r} occurs twice; ids must be unique")
            ids.add(utterance.id)
            found.append(utterance)
        yield row, found


def _nothing(path: Path, split: str | None, utterances: Iterable[Utterance]) -> str:
    if split is None:
        return f"{path} is empty: no utterances in it"
    found = sorted({utterance.split or "none" for utterance in utterances})
    return f"{path} has no utterances of split {split!r}; its splits: {', '.join(found) or 'none'}"


def move_audio_of(utterances: Sequence[Utterance], root: Path, manifest: str | Path) -> list[Utterance]:
    """Change the paths of audio to files below another folder.

    The old folder is the shortest one whose files are below `root` under the same names.

    Args:
        utterances: The utterances.
        root: The folder that the audio has been moved to.
        manifest: Where the utterances are from, for messages.

    Returns:
        The utterances with their new paths.

    Raises:
        WildCTCError: The audio is not there.
    """
    if not root.is_dir():
        raise WildCTCError(f"no such folder: {root}, where the audio should be")
    old = next(
        (found for u in utterances[:_LOOKED_AT] if (found := _old_root(Path(os.path.abspath(u.audio)), root))), None
    )
    if old is None:
        first = utterances[0].audio
        raise WildCTCError(
            f"{root} does not have the audio of {manifest}: neither {Path(*first.parts[-2:])} nor {first.name}, "
            f"its first file, is there; give the folder that replaces one of the folders in {first}"
        )
    _log.info("%s: the audio of %s is read from %s", manifest, old, root)
    paths = [Path(os.path.abspath(u.audio)) for u in utterances]
    return [
        replace(u, audio=root / path.relative_to(old)) if path.is_relative_to(old) else u
        for u, path in zip(utterances, paths, strict=True)
    ]


def _old_root(audio: Path, root: Path) -> Path | None:
    """Find the shortest folder above `audio` for which the same file exists below `root`."""
    return next((old for old in reversed(audio.parents) if os.path.isfile(root / audio.relative_to(old))), None)


def _with_durations(utterances: Iterable[Utterance]) -> list[Utterance]:
    from wildctc.audio.sound_files import check_audio, warn_of_short_files
    from wildctc.corpora.utterance import UtteranceError

    found, checked = [], []
    for utterance in utterances:
        if utterance.duration == 0:
            # an error here is reported by the command that uses the utterance
            with contextlib.suppress(UtteranceError):
                checked.append(check_audio(utterance))
                utterance = checked[-1].utterance
        found.append(utterance)
    warn_of_short_files(checked)
    return found


def parse_row(row: dict[str, Any], path: Path, line: int) -> list[Utterance]:
    """Parse one row of a manifest.

    Args:
        row: A lhotse cut or a plain object.
        path: The manifest.
        line: The number of the row, for errors.

    Returns:
        One utterance, or one for each supervision of a cut. The id is "" if the row has none.

    Raises:
        RowError: A field is missing or wrong.
    """
    try:
        return _cut(row, path) if "recording" in row or "supervisions" in row else [_plain(row, path)]
    except KeyError as error:
        raise RowError(path, line, f"no field {error}: there are {', '.join(row) or 'none'}") from None
    except (IndexError, TypeError, ValueError, AttributeError) as error:
        raise RowError(path, line, str(error)) from None


def _plain(row: dict[str, Any], path: Path) -> Utterance:
    name = "audio_filepath" if "audio_filepath" in row else "audio"
    id = "" if row.get("id") is None else _name(row, "id")
    texts, annotators = _several_texts(row.get("texts"), id)
    text = _string(row, "text") if row.get("text") is not None else next(iter(texts), "")
    return Utterance(
        id=id,
        audio=path.parent / _audio(row, name),
        text=_checked_text(text or "", "text", id),
        texts=texts,
        annotators=annotators,
        speaker=_name(row, "speaker"),
        duration=_seconds(row, "duration"),
        start=_seconds(row, "start" if "start" in row else "offset"),
        channel=_channel(row),
        split=_string(row, "split"),
        language=_string(row, "language"),
        weights=_word_weights(row.get("weights"), id, text or ""),
        fields=_further_fields(row),
    )


def _several_texts(value: Any, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The transcripts of a field `texts`, a list, or an object annotator → transcript; and the annotators."""
    texts = list(value.values()) if isinstance(value, dict) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or value in ([], {}):
        raise ValueError(f"field 'texts' is neither a list of texts nor an object annotator → text: {str(value)[:60]}")
    checked = tuple(_checked_text(text, f"text {n}", id) for n, text in enumerate(texts, start=1))
    return checked, tuple(value) if isinstance(value, dict) else ()


def _checked_text(text: str, name: str, id: str) -> str:
    """Check the braces of a transcript."""
    if has_grammar(text):
        try:
            parse_text(text)
        except WildCTCError as error:
            raise ValueError(f"{f'utterance {id}: ' if id else ''}{name}, {error}") from None
    return text


def _further_fields(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The fields that have no meaning here, such as an annotator, if they are short strings or numbers."""
    kept = {key: value for key, value in row.items() if key not in _KNOWN and type(value) in (str, int, float)}
    return tuple((key, str(value)) for key, value in sorted(kept.items()) if len(str(value)) <= _LONGEST_FIELD)


def _word_weights(weights: Any, id: str, text: str) -> tuple[float, ...] | None:
    """Check the weights of words: one for each word, and no number too large for the lattice."""
    if weights is None:
        return None
    whose = f"utterance {id}" if id else "this utterance"
    if not isinstance(weights, list) or not all(
        type(weight) in (int, float) and abs(weight) <= _LARGEST_WEIGHT for weight in weights
    ):
        raise ValueError(
            f"field 'weights' is not a list of numbers between -{_LARGEST_WEIGHT} and {_LARGEST_WEIGHT}: "
            f"{whose} has {str(weights)[:60]}"
        )
    if len(weights) != len(text.split()):
        raise ValueError(
            f"field 'weights' does not match the words of the text: {whose} has {len(weights)} weights for "
            f"{len(text.split())} words; give one for each word, or remove the field"
        )
    return tuple(map(float, weights))


def _audio(row: dict[str, Any], field: str) -> str:
    name = row[field]
    if not isinstance(name, str):
        raise TypeError(f"field {field!r} is not a string: {name!r}")
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        raise ValueError(f"field {field!r} is not a path: {name!r}")
    return name


def _string(row: dict[str, Any], field: str) -> str | None:
    value = row.get(field)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"field {field!r} is not a string: {value!r}")
    return value


def _name(row: dict[str, Any], field: str) -> Any:
    """Read a string or None; a number is converted."""
    value = row.get(field)
    return str(value) if isinstance(value, int | float) else _string(row, field)


def _seconds(row: dict[str, Any], field: str) -> float:
    value = _number(row, field)
    if value < 0:
        raise ValueError(f"field {field!r} is negative: {value:g}")
    return value


def _channel(row: dict[str, Any], recording: dict[str, Any] | None = None) -> int | None:
    """Read the channel of a row: None if it names none, or all channels of the recording."""
    value = row.get("channel")
    if isinstance(value, list) and recording is not None:
        there = recording.get("channel_ids") or [c for source in recording["sources"] for c in source["channels"]]
        if value != there:
            raise ValueError(f"neither one channel nor all of a recording: {value} of {there}")
        return value[0] if len(value) == 1 else None
    if value is None:
        return None
    number = _number(row, "channel")
    if not number.is_integer():
        raise ValueError(f"field 'channel' is not a whole number: {number:g}")
    return int(number)


def _number(row: dict[str, Any], field: str) -> float:
    value = row.get(field)
    try:
        number = 0.0 if value in (None, "") else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"field {field!r} is not a finite number: {str(value)[:40]}")
    return number


def _cut(row: dict[str, Any], path: Path) -> list[Utterance]:
    if row.get("type", "MonoCut") not in ("MonoCut", "MultiCut"):
        raise ValueError(f"a {row['type']} is not supported; save the audio of the cuts and use MonoCuts")
    if not row.get("recording"):
        raise ValueError("a cut without a recording; cuts with features only are not supported")
    _check_cut(row)
    source = row["recording"]["sources"][0]
    if source["type"] != "file" or row["recording"].get("transforms"):
        raise ValueError(f"recording of type {source['type']!r}, or with transforms; save its audio to a file first")
    audio = Path(_audio(source, "source"))
    if not os.path.isfile(audio):  # as in lhotse, relative to the working directory; otherwise to the manifest
        audio = path.parent / audio
    whole = Utterance(
        id=str(row["id"]),
        audio=audio,
        duration=_seconds(row, "duration"),
        start=_seconds(row, "start"),
        channel=_channel(row, row["recording"]),
        split=_string(row.get("custom") or {}, "split"),
        fields=_further_fields(row.get("custom") or {}),
    )
    said = row.get("supervisions") or []
    if len(said) < 2:
        return [_with_supervision(whole, s, row["recording"]) for s in said] or [whole]
    return [
        replace(
            _with_supervision(whole, s, row["recording"]),
            id=str(s["id"]),
            start=max(0.0, whole.start + _number(s, "start")),
            duration=_seconds(s, "duration"),
        )
        for s in said
    ]


def _check_cut(row: dict[str, Any]) -> None:
    """Raise ValueError if a part of a cut is not of the kind that lhotse writes."""
    recording, custom = row["recording"], row.get("custom") or {}
    if not isinstance(recording, dict) or not _are_objects(sources := recording.get("sources")) or not sources:
        raise ValueError(f"field 'recording' has no list of sources: {str(recording)[:60]}")
    if not isinstance(custom, dict):
        raise ValueError(f"field 'custom' is not an object: {str(custom)[:60]}")
    if not _are_objects(said := row.get("supervisions") or []):
        raise ValueError(f"field 'supervisions' is not a list of objects: {str(said)[:60]}")


def _are_objects(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _with_supervision(whole: Utterance, supervision: dict[str, Any], recording: dict[str, Any]) -> Utterance:
    text, language = _string(supervision, "text"), _string(supervision, "language")
    # in a cut of all channels, each supervision may name its own channel
    channel = _channel(supervision, recording) if whole.channel is None else whole.channel
    speaker = _name(supervision, "speaker")
    id = str(supervision.get("id") or whole.id)
    custom = supervision.get("custom") or {}
    weights = _word_weights(custom.get("weights"), id, text or "")
    texts, annotators = _several_texts(custom.get("texts"), id)
    fields = tuple(sorted({**dict(whole.fields), **dict(_further_fields(custom))}.items()))
    said: dict[str, Any] = {"text": _checked_text(text or "", "text", id), "texts": texts, "annotators": annotators}
    said |= {"speaker": speaker, "language": language, "channel": channel, "weights": weights}
    return replace(whole, **said, fields=fields)


def split_of(subset: str) -> str | None:
    """Find the split of a subset by the first letters of its name.

    Args:
        subset: The name of a file, a folder or a subset.

    Returns:
        train, dev or test; None if the name begins with none of these, nor with val or eval.

    >>> split_of("train-clean-100"), split_of("validation"), split_of("eval92"), split_of("lang")
    ('train', 'dev', 'test', None)
    """
    return next((split for prefix, split in _SPLITS.items() if subset.lower().startswith(prefix)), None)


def write_cuts(path: Path, utterances: Iterable["CheckedAudio"]) -> None:
    """Write lhotse cuts, atomically; the same utterances give the same bytes.

    An utterance with the mean of all channels becomes a MultiCut of all of them, any other a MonoCut.

    Args:
        path: The file, .jsonl.gz.
        utterances: The utterances, with what is known about their audio.
    """
    from wildctc.files import as_bytes, write_atomically

    raw = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for checked in utterances:
            file.write(as_bytes(json.dumps(_as_cut(checked), ensure_ascii=False) + "\n"))
    write_atomically(path, raw.getvalue())


def _as_cut(checked: "CheckedAudio") -> dict[str, Any]:
    u, samples, rate = checked.utterance, checked.samples, checked.rate
    channels = list(range(checked.channels))
    channel = channels if u.channel is None else u.channel
    recording_id = u.id if u.start == 0 else u.audio.stem
    supervision = {"id": u.id, "recording_id": recording_id, "start": 0.0, "duration": u.duration}
    supervision |= {"channel": channel, "text": u.text}
    supervision |= {field: value for field in ("speaker", "language") if (value := getattr(u, field))}
    custom: dict[str, Any] = dict(u.fields)
    custom |= {"weights": list(u.weights)} if u.weights is not None else {}
    if u.texts:
        custom["texts"] = dict(zip(u.annotators, u.texts, strict=True)) if u.annotators else list(u.texts)
    supervision |= {"custom": custom} if custom else {}
    source = {"type": "file", "channels": channels, "source": str(u.audio)}
    recording = {"id": recording_id, "sources": [source], "sampling_rate": rate, "num_samples": samples}
    recording |= {"duration": samples / rate, "channel_ids": channels}
    cut = {"id": u.id, "start": u.start, "duration": u.duration, "channel": channel}
    return cut | {
        "supervisions": [supervision],
        "recording": recording,
        "custom": {"split": u.split},
        "type": "MultiCut" if u.channel is None else "MonoCut",
    }
