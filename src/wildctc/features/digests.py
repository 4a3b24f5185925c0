"""What audio a file holds: a digest of its bytes, noted beside the features so that it is computed once.

The features of a corpus are found by what its files hold, so a copied or moved corpus is not computed again. A note has
the name of a file's path, and in it the size and time of change for which its digest holds.
"""

import contextlib
import errno
import hashlib
import os
import stat
from pathlib import Path

from wildctc.audio.archives import audio_state, find_member
from wildctc.audio.sound_files import warn_of_unreadable_audio
from wildctc.files import patiently, put_file


class AudioDigests:
    """Digests of audio files, with their notes in a folder that several processes may share.

    Attributes:
        folder: Where the notes are.
        parts: A folder on the same disk for files that are being written.
    """

    def __init__(self, folder: Path, parts: Path) -> None:
        """Name the folders; they need not exist.

        Args:
            folder: Where the notes are.
            parts: A folder on the same disk for files that are being written.
        """
        self.folder, self.parts = folder, parts

    def get(self, audio: Path) -> str:
        """Find the digest of a file.

        Args:
            audio: The file.

        Returns:
            Its digest; that which was noted last, if the file cannot be read now.

        Raises:
            OSError: The file cannot be read and never was.
        """
        noted = self._read(audio)
        try:
            status = patiently(lambda: audio_state(audio))
            if not stat.S_ISREG(status.mode):  # a device may have no end, a pipe no writer
                raise OSError(errno.EINVAL, "not a file", str(audio))
            state = f"{status.size} {status.changed}"
            if noted is not None and noted[0] == state:
                return noted[1]
            digest = f"{status.size}-{patiently(lambda: _digest(audio))}"
        except OSError as error:
            if noted is None:
                raise
            warn_of_unreadable_audio(audio, error)
            return noted[1]
        self._write(audio, f"{state} {digest}\n")
        return digest

    def noted(self, audio: Path) -> str | None:
        """Find the digest that was noted last for a file, without looking at the file.

        Args:
            audio: The file.

        Returns:
            The digest; None if the path is new.
        """
        noted = self._read(audio)
        return None if noted is None else noted[1]

    def _path(self, audio: Path) -> Path:
        name = hashlib.sha256(os.fsencode(os.path.abspath(audio))).hexdigest()[:32]
        return self.folder / name[:2] / name[2:]

    def _read(self, audio: Path) -> tuple[str, str] | None:
        try:
            size, time, digest = self._path(audio).read_text(encoding="ascii").split()
        except (OSError, ValueError):  # not there, or damaged: it is made anew
            return None
        return f"{size} {time}", digest

    def _write(self, audio: Path, note: str) -> None:
        # A cache that can only be read is of use all the same.
        with contextlib.suppress(OSError):
            put_file(self._path(audio), note.encode("ascii"), self.parts, replace=True)


def _digest(audio: Path) -> str:
    member = find_member(audio)
    if member is not None:
        return hashlib.sha256(member.read()).hexdigest()
    with audio.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
