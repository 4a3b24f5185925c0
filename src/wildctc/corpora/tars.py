"""Speech in tar archives, which is used where it is: WebDataset, the shards of WeNet, and NeMo's tarred datasets.

In the first two, the files of an utterance have the same name before the first dot: the audio, and `.json` (with `text`
and perhaps `id`, `speaker`, …) or `.txt`. NeMo has the texts in a manifest beside the archives. Nothing is unpacked:
the path of the audio names the archive and the place in it.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from wildctc.audio.archives import name_member
from wildctc.corpora.audio_folder import TEXTS
from wildctc.corpora.manifest import parse_row, split_of
from wildctc.corpora.utterance import Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_lines, try_rows

_AUDIO = ("flac", "wav", "mp3", "ogg", "opus")
_LARGEST_TEXT = 1_000_000  # bytes of a .json or .txt


def read_webdataset(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read archives of WebDataset or WeNet.

    Args:
        source: An archive, a folder of archives, or a list of archives (`shards.list`, a path in each line). An archive
            belongs to the split that it, or its folder, is named after, or to train.

    Yields:
        The utterances; for one that cannot be used, what is wrong with it.
    """
    for path in _archives(source):
        split = split_of(path.name) or split_of(path.parent.name) or "train"
        samples: dict[str, dict[str, Any]] = {}
        for name, member, content in _members(path, (*_AUDIO, "json", "txt")):
            key, _, ending = name.partition(".")
            found = samples.setdefault(key, {})
            found["audio" if ending in _AUDIO else ending] = member if ending in _AUDIO else content
            if "audio" in found and ("json" in found or "txt" in found):
                yield _sample(key, samples.pop(key), split)
        for key, found in samples.items():
            lacking = "no .json and no .txt" if "audio" in found else "no audio"
            yield UtteranceError(Utterance(key.rsplit("/", 1)[-1], path), f"{lacking} beside its other files")


def read_nemo(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read a tarred dataset of NeMo.

    Args:
        source: The folder with the archives, and with their manifest: the only .json or .jsonl, or the one with
            "manifest" in its name. Its rows have `audio_filepath`, the name inside an archive, and `text`.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    found = sorted(p for p in source.glob("*.json*") if p.suffix in (".json", ".jsonl"))
    manifest = next((p for p in found if "manifest" in p.name), found[0] if len(found) == 1 else None)
    if manifest is None:
        raise WildCTCError(f"{source}: no manifest beside the archives: *manifest*.json")
    places = {name: member for path in _archives(source) for name, member, _ in _members(path, _AUDIO)}
    for line, row in try_rows(manifest):
        try:
            if isinstance(row, RowError):
                raise row
            [utterance] = parse_row(row, manifest, line)
            name = str(row["audio_filepath"])
            if name not in places:
                raise RowError(manifest, line, f"no such file in the archives: {name}")
        except RowError as error:
            yield bad_row(error)
            continue
        # its offset is of the recording that the file was cut from
        yield replace(utterance, id=utterance.id or Path(name).stem, audio=places[name], start=0.0)


def read_wenet(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read a list of WeNet: lines of JSON with `key`, `wav` and `txt`.

    Args:
        source: `data.list`, or a folder with such lists; a list belongs to the split that it, or its folder, is named
            after, or to train.

    Yields:
        The utterances; for a line that cannot be used, what is wrong with it.
    """
    lists = [source] if source.is_file() else sorted(source.rglob("data.list"))
    if not lists:
        raise WildCTCError(f"no data.list in {source} (archives are read by `wildctc prepare webdataset`)")
    for path in lists:
        split = split_of(path.name) or split_of(path.parent.name) or "train"
        for line, row in try_rows(path):
            try:
                if isinstance(row, RowError):
                    raise row
                plain = {"id": row["key"], "audio": row["wav"], "text": row["txt"], "split": split}
                plain |= {name: row[name] for name in ("speaker", "start") if name in row}
                if "end" in row:
                    plain["duration"] = float(row["end"]) - float(row.get("start", 0.0))
                yield from parse_row(plain, path, line)
            except RowError as error:
                yield bad_row(error)
            except (KeyError, TypeError, ValueError) as error:
                yield bad_row(RowError(path, line, f"not a line of key, wav and txt: {error}"))


def _archives(source: Path) -> list[Path]:
    if source.is_dir():
        paths = sorted(source.rglob("*.tar"))
    elif source.suffix == ".tar":
        paths = [source]
    else:
        paths = [source.parent / text.strip() for _, text in try_lines(source) if isinstance(text, str)]
    if not paths:
        raise WildCTCError(f"no archives (*.tar) in {source}")
    return paths


def _members(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, Path, bytes]]:
    """The files of an archive that have these endings: name, path of its own, and the content of texts."""
    try:
        with tarfile.open(path, "r:") as tar:
            for info in tar:
                ending = info.name.rsplit("/", 1)[-1].partition(".")[2].lower()
                if info.isfile() and ending in endings:
                    content = b""
                    if ending not in _AUDIO and info.size <= _LARGEST_TEXT:
                        file = tar.extractfile(info)
                        content = b"" if file is None else file.read()
                    yield info.name, name_member(path, info.offset_data, info.size), content
    except (tarfile.TarError, EOFError) as error:
        raise WildCTCError(f"{path}: not a readable tar archive ({error}); compressed ones must be unpacked") from None
    except OSError as error:
        raise WildCTCError(f"cannot read {path}: {error.strerror}") from None


def _sample(key: str, found: dict[str, Any], split: str) -> Utterance | UtteranceError:
    name = key.rsplit("/", 1)[-1]
    try:
        row = json.loads(found["json"]) if "json" in found else {}
        if "txt" in found and not any(field in row for field in TEXTS):
            row["text"] = found["txt"].decode("utf-8").strip()
        text = next(field for field in TEXTS if field in row)
        plain = {k: v for k, v in row.items() if k not in (text, "audio", "audio_filepath", "start", "offset")}
        given = {"id": row.get("id", name), "audio": str(found["audio"]), "text": row[text]}
        given["split"] = row.get("split") or split
        [utterance] = parse_row(plain | given, found["audio"], 1)
    except (RowError, ValueError, TypeError, AttributeError, StopIteration) as error:
        reason = error.reason if isinstance(error, RowError) else str(error) or f"none of {', '.join(TEXTS)}"
        return UtteranceError(Utterance(name, found["audio"]), f"not a row with a text: {reason}")
    return utterance
