"""Audio inside a tar archive, named as Kaldi names matrices in an archive: `train/00000-000.tar:1536+48231`.

The numbers are the first byte of the audio file in the archive, and its size. Such a path stands wherever the path of
an audio file can stand, and is read without looking for anything in the archive.
"""

from __future__ import annotations

import errno
import io
import re
from pathlib import Path
from typing import NamedTuple

_MEMBER = re.compile(r"(.*\.tar):(\d+)\+(\d+)")


class Member(NamedTuple):
    """A file inside an archive.

    Attributes:
        archive: The tar file.
        offset: The first byte.
        size: Bytes.
    """

    archive: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """Read the file.

        Returns:
            Its bytes.

        Raises:
            OSError: The archive cannot be read, or ends before.
        """
        with open(self.archive, "rb") as file:
            file.seek(self.offset)
            content = file.read(self.size)
        if len(content) < self.size:
            raise OSError(errno.EINVAL, "the archive is shorter than its index says", str(self.archive))
        return content


class FileState(NamedTuple):
    """What the file system says about an audio file.

    Attributes:
        mode: Its kind and permissions; those of the archive, if it is in one.
        size: Bytes.
        changed: When it was last changed, in nanoseconds.
    """

    mode: int
    size: int
    changed: int


def name_member(archive: Path, offset: int, size: int) -> Path:
    """Name a file inside an archive.

    Args:
        archive: The tar file.
        offset: The first byte.
        size: Bytes.

    Returns:
        The path.

    >>> str(name_member(Path("a.tar"), 512, 100))
    'a.tar:512+100'
    """
    return archive.with_name(f"{archive.name}:{offset}+{size}")


def find_member(path: Path) -> Member | None:
    """Tell whether a path names a file inside an archive.

    Args:
        path: The path.

    Returns:
        The file inside the archive; None for the path of a file of its own.

    >>> find_member(Path("a.tar:512+100")).offset
    512
    """
    found = _MEMBER.fullmatch(str(path))
    return None if found is None else Member(Path(found[1]), int(found[2]), int(found[3]))


def audio_state(path: Path) -> FileState:
    """Ask the file system about an audio file.

    Args:
        path: The file, which may be inside an archive.

    Returns:
        Its kind, size and time.

    Raises:
        OSError: It is not there, or cannot be read.
    """
    member = find_member(path)
    status = (path if member is None else member.archive).stat()
    return FileState(status.st_mode, status.st_size if member is None else member.size, status.st_mtime_ns)


def audio_source(path: Path) -> Path | io.BytesIO:
    """Give what soundfile can open.

    Args:
        path: The file, which may be inside an archive.

    Returns:
        The path, or the bytes of a file inside an archive.

    Raises:
        OSError: The archive cannot be read.
    """
    member = find_member(path)
    return path if member is None else io.BytesIO(member.read())
