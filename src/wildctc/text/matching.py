"""Whether two transcripts are the same one, written with or without capitals and punctuation.

A model's units normalise a transcript before it is probed. What is found out about the normalised form is then applied
to the transcript as its manifest has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wildctc.text.normalisation import Normalizer

_NORMALIZERS = [Normalizer(lower, strip) for lower in (False, True) for strip in (False, True)]


def find_normalizer(written: str, judged: str) -> Normalizer | None:
    """Find the normalisation that makes two transcripts equal, the one that changes least.

    Args:
        written: The transcript as the manifest has it.
        judged: The transcript that was probed or judged.

    Returns:
        The normaliser; None if they are different transcripts.

    >>> find_normalizer("Selamat pagi, Ann!", "selamat pagi ann")
    Normalizer(lower=True, strip_punctuation=True, keep_invisible=False)
    >>> find_normalizer("selamat pagi", "selamat malam")
    """
    return next((n for n in _NORMALIZERS if n(written) == n(judged)), None)


def find_case(judged: Iterable[str], written: Iterable[str], manifest: Iterable[str]) -> Callable[[str], str] | None:
    """Find how new words get the case of a manifest, if either it or the judged texts are in capitals only.

    Many Hugging Face checkpoints write capitals only, and so does LibriSpeech.

    Args:
        judged: The transcripts that were probed or judged.
        written: The same transcripts as the manifest has them.
        manifest: All transcripts of the manifest.

    Returns:
        `str.lower` or `str.upper`; None if words stay as they are.

    >>> find_case(["GOOD DAY"], ["good day"], ["good day", "Ann"]) is str.lower
    True
    """
    capitals = " ".join(judged).isupper()
    if capitals and not " ".join(written).isupper():
        return str.lower
    if not capitals and " ".join(manifest).isupper():
        return str.upper
    return None
