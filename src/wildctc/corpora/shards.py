"""Shards: a corpus in few large files, which are read from the beginning to the end.

A folder of shards has `shards.json`, which lists them, and for each shard two files: `NAME.tar` (WebDataset: the audio
file of each utterance, and beside it a `.json` with its row of the manifest) and `NAME.arrow` (the index: a table of
the utterances, with the place of each in the archive). A shard whose audio stays where it is has the table only.

Whoever opens the folder reads `shards.json`. The tables are mapped into memory and shared by all processes.
"""

from __future__ import annotations

import json
import os
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.audio.archives import name_member
from wildctc.corpora.manifest import load_manifest, move_audio_of, parse_row
from wildctc.corpora.utterance import Utterance
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import writing

LIST = "shards.json"
FORMAT = "wildctc shards 1"
_READ = ("id", "text", "audio", "offset", "size", "start", "duration", "channel", "speaker", "split", "more")


@dataclass(frozen=True)
class Shard:
    """What the list of shards says about one of them.

    Attributes:
        name: Of its files.
        utterances: How many there are.
        seconds: Their speech.
        digest: SHA-256 of the archive, or of the table if there is no archive.
        characters: The characters of its transcripts.
        audio: Whether it has an archive.
        archive: The archive, if it is not beside the table but in another folder of shards: relative to this folder, or
            an address.
    """

    name: str
    utterances: int
    seconds: float
    digest: str
    characters: str
    audio: bool = True
    archive: str | None = None


@dataclass(frozen=True)
class Shards:
    """A folder of shards.

    Attributes:
        address: The folder, or its address for fsspec, such as `s3://bucket/train`.
        shards: The shards, by name.
        audio_root: Where audio that is not in the archives is now, if it was moved.
        spool: Where shards of an address are copied to while they are used.
    """

    address: str
    shards: Sequence[Shard]
    audio_root: str | None = None
    spool: Any = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def utterances(self) -> int:
        """How many utterances all shards have."""
        return sum(shard.utterances for shard in self.shards)

    @property
    def seconds(self) -> float:
        """The speech of all shards."""
        return sum(shard.seconds for shard in self.shards)

    def table(self, number: int) -> Any:
        """Open the table of a shard.

        Args:
            number: Of the shard.

        Returns:
            An Arrow table, mapped into memory.

        Raises:
            WildCTCError: It cannot be read, or has another number of rows than the list says.
        """
        pa = arrow()
        shard = self.shards[number]
        path = self.file(number, "arrow")
        try:
            with pa.memory_map(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise WildCTCError(f"{path}: cannot be read ({error}); pack the corpus again") from None
        if len(table) != shard.utterances:
            raise WildCTCError(
                f"{path}: has {len(table)} utterances, but {LIST} says {shard.utterances}; pack the corpus again"
            )
        return table

    def read(self, number: int, audio: bool = True) -> list[Utterance]:
        """Read the utterances of a shard.

        Args:
            number: Of the shard.
            audio: Whether their audio will be read, for which the archive of a shard at an address is copied.

        Returns:
            The utterances, in the order of its archive.
        """
        table = self.table(number)
        archive = self.file(number, "tar", audio) if self.shards[number].audio else None
        columns = {
            name: table.column(name).to_pylist() for name in table.column_names if name not in ("rate", "samples")
        }
        found = [
            _utterance(dict(zip(columns, row, strict=True)), archive) for row in zip(*columns.values(), strict=True)
        ]
        if self.audio_root is not None and archive is None:
            found = move_audio_of(found, Path(self.audio_root), self.address)
        return found

    def lengths(self, number: int) -> list[tuple[int, int]]:
        """Look up how long the utterances of a shard are.

        Args:
            number: Of the shard.

        Returns:
            The samples of each utterance, and their sampling rate in Hz.
        """
        table = self.table(number)
        return list(zip(table.column("samples").to_pylist(), table.column("rate").to_pylist(), strict=True))

    def file(self, number: int, ending: str, needed: bool = True) -> Path:
        """Find a file of a shard; one at an address is copied first.

        Args:
            number: Of the shard.
            ending: "tar" or "arrow".
            needed: False if the file will not be read, and need not be copied.

        Returns:
            Its path on this machine.
        """
        shard = self.shards[number]
        place = self.place(number) if ending == "tar" else f"{self.address.rstrip('/')}/{shard.name}.{ending}"
        if is_address(place):
            return self.spool.fetch(place, f"{shard.name}.{ending}") if needed else Path(place)
        return Path(place)

    def place(self, number: int) -> str:
        """Find where the archive of a shard is.

        Args:
            number: Of the shard.

        Returns:
            Its path or address.
        """
        shard = self.shards[number]
        name = shard.archive or f"{shard.name}.tar"
        if is_address(name):
            return name
        if not is_address(self.address):
            return str(Path(self.address) / name)
        protocol, _, folder = self.address.partition("://")
        return f"{protocol}://{posixpath.normpath(f'{folder}/{name}')}"

    def done(self, number: int) -> None:
        """Say that a shard is not needed any more, so that the copy of one at an address is removed.

        Args:
            number: Of the shard.
        """
        if self.spool is not None:
            for ending in ("tar", "arrow"):
                self.spool.remove(f"{self.shards[number].name}.{ending}")


class _Spool:
    """Copies of remote files: each is read once, from its beginning to its end.

    A process has a folder of its own inside that of the process which forked it, and which removes all of them.
    """

    def __init__(self) -> None:
        self._root: tempfile.TemporaryDirectory[str] | None = None

    def fetch(self, address: str, name: str) -> Path:
        if self._root is None:
            self._root = tempfile.TemporaryDirectory(prefix="wildctc-shards-")
        path = self._folder() / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            with writing(path):
                part.write_bytes(read_address(address))
                part.rename(path)
        return path

    def remove(self, name: str) -> None:
        if self._root is not None:
            (self._folder() / name).unlink(missing_ok=True)

    def _folder(self) -> Path:
        assert self._root is not None
        return Path(self._root.name) / str(os.getpid())


def is_address(name: str | Path) -> bool:
    """Tell whether a name is an address for fsspec, and not a path.

    Args:
        name: The name.

    Returns:
        Whether it has a protocol.

    >>> is_address("s3://bucket/train"), is_address("data/train")
    (True, False)
    """
    return "://" in str(name)


def read_address(address: str) -> bytes:
    """Read a file at an address.

    Args:
        address: Such as `s3://bucket/train/shards.json`.

    Returns:
        Its content.

    Raises:
        WildCTCError: It cannot be read.
    """
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("fsspec", "shards") from None
    try:
        with fsspec.open(address, "rb") as file:
            return bytes(file.read())
    except (OSError, ValueError, ImportError) as error:
        raise WildCTCError(
            f"{address}: cannot be read: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None


def are_shards(name: str | Path) -> bool:
    """Tell whether a name is that of a folder of shards. Nothing is looked up at an address.

    Args:
        name: A path or an address.

    Returns:
        Whether it is an address, or a folder with a list of shards.
    """
    return is_address(name) or (Path(name) / LIST).is_file()


def open_shards(address: str | Path, audio_root: str | Path | None = None) -> Shards:
    """Open a folder of shards. This reads the list of shards and nothing else.

    Args:
        address: The folder, or its address for fsspec.
        audio_root: Where audio that is not in the archives is now, if it was moved.

    Returns:
        The shards.

    Raises:
        WildCTCError: It has no list of shards that can be read.
    """
    address = str(address)
    remote = is_address(address)
    try:
        text = read_address(f"{address.rstrip('/')}/{LIST}") if remote else (Path(address) / LIST).read_bytes()
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise WildCTCError(f"{address}/{LIST}: of format {content['format']!r}, not {FORMAT!r}")
        shards = [Shard(**row) for row in content["shards"]]
    except OSError as error:
        raise WildCTCError(f"{address}: no shards: {error.strerror}; `wildctc pack` makes them") from None
    except (ValueError, KeyError, TypeError) as error:
        raise WildCTCError(f"{address}/{LIST}: damaged ({error}); pack the corpus again") from None
    if not shards:
        raise WildCTCError(f"{address}/{LIST} lists no shards: pack the corpus again")
    root = None if audio_root is None else str(audio_root)
    copies = remote or any(is_address(shard.archive or "") for shard in shards)
    return Shards(address, shards, root, _Spool() if copies else None)


def stream(shards: Shards) -> Iterator[tuple[Shard, list[Utterance]]]:
    """Read shard after shard, in their order.

    Args:
        shards: The shards.

    Yields:
        Each shard and its utterances.
    """
    for number, shard in enumerate(shards.shards):
        yield shard, shards.read(number)
        shards.done(number)


def load_shards(address: str | Path, split: str | None = None, audio_root: str | Path | None = None) -> list[Utterance]:
    """Read the utterances of all shards into memory, for what needs all of them.

    Args:
        address: The folder, or its address for fsspec.
        split: Only utterances of this split.
        audio_root: Where audio that is not in the archives is now, if it was moved.

    Returns:
        The utterances.

    Raises:
        WildCTCError: The shards cannot be read, or have no such utterances.
    """
    shards = open_shards(address, audio_root)
    found = [u for number in range(len(shards)) for u in shards.read(number) if split is None or u.split == split]
    if not found:
        raise WildCTCError(f"{address} has no utterances of split {split!r}")
    return found


def load_utterances(
    manifest: str | Path, split: str | None = None, audio_root: str | Path | None = None
) -> list[Utterance]:
    """Read the utterances of a manifest or of shards into memory.

    Args:
        manifest: The manifest, or the folder or address of shards.
        split: Only utterances of this split.
        audio_root: The folder that the audio has been moved to.

    Returns:
        The utterances.

    Raises:
        WildCTCError: It cannot be read, or has no such utterances.
    """
    return (load_shards if are_shards(manifest) else load_manifest)(manifest, split, audio_root)


def _utterance(row: dict[str, Any], archive: Path | None) -> Utterance:
    """The utterance of a row of a table."""
    audio = Path(row["audio"]) if archive is None else name_member(archive, row["offset"], row["size"])
    if row["more"] is not None:
        [found] = parse_row(json.loads(row["more"]) | {"audio": str(audio.absolute())}, audio, 0)
        return found
    return Utterance(
        row["id"], audio, row["text"], row["speaker"], row["duration"], row["start"], row["channel"], row["split"]
    )


def describe(folder: str | Path, shards: Sequence[Shard]) -> str:
    """Say in a line what a folder of shards has.

    Args:
        folder: The folder.
        shards: Its shards.

    Returns:
        The line.

    >>> describe("train", [Shard("000000", 1000, 7200.0, "", "abc")])
    'train: 1,000 utterances, 2.00 h, in 1 shard'
    """
    hours, count = sum(shard.seconds for shard in shards) / 3600, sum(shard.utterances for shard in shards)
    return f"{folder}: {count:,} utterances, {hours:,.2f} h, in {len(shards):,} shard{'s' * (len(shards) != 1)}"


def arrow() -> Any:
    """Import pyarrow, which is not a part of the core.

    Returns:
        The module.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise MissingExtra("pyarrow", "shards") from None
    return pyarrow
