"""Corpora: from files on disk to utterances with audio and text."""

from .audio import UtteranceError, check_audio, load_audio, resample
from .manifest import Utterance, load_manifest
from .preparation import Rejects, prepare
from .subset import Subset

__all__ = [
    "Rejects",
    "Subset",
    "Utterance",
    "UtteranceError",
    "check_audio",
    "load_audio",
    "load_manifest",
    "prepare",
    "resample",
]
