"""A CTC checkpoint of Hugging Face's transformers, given by its folder, in the place of a `Recognizer`.

The checkpoint must write characters: its tokenizer's tokens are single characters, its word delimiter is the space, its
padding token is the blank. Utterances go through the model one by one, so that padding cannot change the result.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.recognizer.frame_times import time_in_audio
from wildctc.text.normalisation import Normalizer
from wildctc.text.words import word_ids

_LOCAL = {"local_files_only": True, "trust_remote_code": False}  # for from_pretrained: no network, no foreign code
_UNKNOWN = "\ufffd"  # shown for the checkpoint's token for unknown characters


class Checkpoint:
    """A checkpoint that can be probed, aligned and transcribed with, read from the files in a folder only.

    The blank becomes label 0; the other labels keep their order.

    Attributes:
        folder: The checkpoint's folder.
        front_end: Prepares a wave for the model.
        units: The characters that the model writes.
        frame_rate: Frames of logits per second.
        calibration: None: a checkpoint has no word confidences.
    """

    calibration = None

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        transformers = _transformers()
        if not (self.folder / "config.json").is_file():
            raise WildCTCError(f"{folder}: no Hugging Face checkpoint there (no config.json); give a local folder")
        try:
            extractor = transformers.AutoFeatureExtractor.from_pretrained(self.folder, **_LOCAL)
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder, **_LOCAL)
            self._model = self._load(transformers)
        except WildCTCError:
            raise
        except Exception as error:  # transformers raises errors of many kinds for files that it cannot read
            reason = str(error).strip().split("\n")[0]
            raise WildCTCError(f"{folder}: not a CTC checkpoint with its tokenizer: {reason}") from None
        self.front_end = CheckpointFrontEnd(extractor)
        outputs = int(self._model.config.vocab_size)
        blank = self._model.config.pad_token_id
        if blank is None or not 0 <= blank < outputs:
            raise WildCTCError(f"{folder}: config.json has no pad_token_id among its {outputs} outputs: no blank")
        self._order = [blank, *(label for label in range(outputs) if label != blank)]
        self.units = CheckpointUnits(tokenizer, self._order, str(folder))
        rate = self.front_end.sampling_rate
        one, two = (len(self.batch_logits([self.front_end.extract(np.zeros(n * rate, np.float32))])[0]) for n in (2, 4))
        self.frame_rate = (two - one) / 2.0

    def _load(self, transformers: Any) -> Any:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        model, report = transformers.AutoModelForCTC.from_pretrained(
            self.folder, **_LOCAL, dtype=torch.float32, output_loading_info=True
        )
        # A checkpoint without its output layer would get a random one.
        if missing := sorted(key for key in report["missing_keys"] if "masked_spec_embed" not in key):
            raise WildCTCError(f"{self.folder}: no weights for {missing[0]}: not fine-tuned with CTC?")
        return model.eval().requires_grad_(False)

    def to(self, device: str) -> Checkpoint:
        """Move the model to a device.

        Args:
            device: As for torch, such as "cuda".

        Returns:
            The checkpoint itself.
        """
        self._model.to(device)
        return self

    def times(self, frames: int, duration: float) -> list[float]:
        """Compute when each frame of logits starts, and when the last one ends.

        Args:
            frames: The number of frames.
            duration: Seconds of audio.

        Returns:
            frames + 1 times, in seconds from the start of the audio.
        """
        rate = self.frame_rate
        return [time_in_audio(frame / rate, frames / rate, duration) for frame in range(frames + 1)]

    def fingerprint(self) -> str:
        """Compute a short hash of all files in the folder that decide the logits and their names.

        Returns:
            Sixteen hexadecimal digits.
        """
        digest = hashlib.sha256()
        for path in sorted(self.folder.iterdir()):
            if path.suffix in (".json", ".safetensors", ".bin"):
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:16]

    @torch.inference_mode()
    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Compute the logits of utterances.

        Args:
            features: For each utterance (T, F), as `front_end.extract` returns them.

        Returns:
            For each utterance (T', V), float32 on the CPU.
        """
        return [self._logits(torch.from_numpy(x)) for x in features]

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        x = x.squeeze(1) if self.front_end.shape == (1,) else x
        try:
            logits = self._model(x.unsqueeze(0).to(self._model.device)).logits[0]
        except (RuntimeError, ValueError):
            if len(x) >= self.front_end.frame_rate:
                raise
            return torch.empty(0, len(self._order))  # shorter than the convolutions need
        return logits.float().cpu()[:, self._order]


class CheckpointFrontEnd:
    """A checkpoint's own preparation of a wave: the normalised wave (samples, 1), or a spectrogram (frames, dim).

    Attributes:
        digest: Always empty: these features are not cached.
        sampling_rate: Samples per second of the waves that it takes.
        shape: The shape of one frame.
        frame_rate: Frames per second.
        name: The name of the extractor's class.
    """

    digest = ""

    def __init__(self, extractor: Any) -> None:
        self._extractor = extractor
        self.sampling_rate = int(extractor.sampling_rate)
        second = self.extract(np.zeros(self.sampling_rate, np.float32))
        self.shape = second.shape[1:]
        self.frame_rate = float(len(second))
        self.name = type(extractor).__name__

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Args:
            samples: Its number of samples.

        Returns:
            The number of frames.
        """
        return len(self.extract(np.zeros(samples, np.float32)))

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Prepare a wave.

        Args:
            wave: (samples,) float32.

        Returns:
            (frames, F) float32; F is 1 for a model that takes waves.
        """
        if len(wave) == 0:
            return np.empty((0, *self.shape), np.float32)
        found = self._extractor(wave, sampling_rate=self.sampling_rate, return_tensors="np")
        x = np.asarray(found["input_values" if "input_values" in found else "input_features"][0], dtype=np.float32)
        return x[:, None] if x.ndim == 1 else x


class CheckpointUnits:
    """The characters that a checkpoint writes.

    Transcripts are converted to the vocabulary's case. Their punctuation is removed if the vocabulary has none. Other
    characters that the vocabulary lacks are `missing`.

    Attributes:
        tokens: label → character; "" for special tokens and the blank.
        normalizer: Applied to each text before it is encoded.
        upper: Whether the vocabulary has upper case only.
        outside: What `missing` finds, for messages.
    """

    kind = "char"
    outside = "characters outside the units"
    space: str | None = " "

    def __init__(self, tokenizer: Any, order: Sequence[int], where: str) -> None:
        """Read the vocabulary of a tokenizer.

        Args:
            tokenizer: The tokenizer of transformers.
            order: The checkpoint's labels, with the blank first.
            where: The folder, for error messages.
        """
        # the string of each label: the space is " ", special tokens are empty
        strings = {label: token for token, label in tokenizer.get_vocab().items()}
        space = getattr(tokenizer, "word_delimiter_token", None) or "|"
        special = set(tokenizer.all_special_tokens) - {space}
        self.tokens = []
        for label in order:
            token = strings.get(label, "")
            if token == tokenizer.unk_token:
                token = _UNKNOWN
            elif token in special or label == order[0]:
                token = ""
            self.tokens.append(" " if token == space else token)
        if long := [token for token in self.tokens if len(token) > 1]:
            raise WildCTCError(
                f"{where}: token {long[0]!r} has several characters: only checkpoints that write characters can be used"
            )
        # NFC decomposes some letters, such as ड़ (U+095C). Such a token then has two code points.
        before, self.tokens = self.tokens, [unicodedata.normalize("NFC", token) for token in self.tokens]
        labels = [label for label, token in enumerate(before) if token not in ("", _UNKNOWN)]
        labels.sort(key=lambda label: self.tokens[label] == before[label])  # of two that NFC makes equal, the last wins
        self._ids = {self.tokens[label]: label for label in labels}
        parts = sorted((token for token in self._ids if len(token) > 1), key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, parts), "."]), re.DOTALL)
        self.normalizer = _normalizer(self._ids)
        self.upper = any(c.isupper() for c in self._ids) and not any(c.islower() for c in self._ids)

    def _text(self, text: str) -> str:
        text = self.normalizer(text)
        return text.upper() if self.upper else text

    def encode(self, text: str) -> list[int]:
        """Convert a text to labels.

        Args:
            text: The text, not yet normalised; no character is `missing`.

        Returns:
            The labels.
        """
        return [self._ids[char] for char in self._pattern.findall(self._text(text))]

    def missing(self, text: str) -> list[str]:
        """Find the characters that the vocabulary lacks.

        Args:
            text: The text, not yet normalised.

        Returns:
            These characters in the order of the text, each once.
        """
        return [char for char in dict.fromkeys(self._pattern.findall(self._text(text))) if char not in self._ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Convert labels into text.

        Args:
            ids: Labels; the blank and special tokens are skipped.

        Returns:
            The text, with single spaces between words.
        """
        return " ".join("".join(self.tokens[i] for i in ids).split())

    def words(self, ids: Iterable[int]) -> list[int]:
        """Find the word of each label, for the `words` argument of the loss.

        Args:
            ids: The labels of one transcript.

        Returns:
            For each label the number of its word, as `word_ids` counts.
        """
        return word_ids([self.tokens[i] for i in ids], space=" ")


def _normalizer(vocabulary: Iterable[str]) -> Normalizer:
    characters = set(vocabulary)
    lower = any(c.islower() for c in characters) and not any(c.isupper() for c in characters)
    strip = Normalizer(strip_punctuation=True)
    punctuated = any(strip(f"a{c}a") != Normalizer()(f"a{c}a") for c in characters)
    return Normalizer(lower=lower, strip_punctuation=not punctuated)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf") from None
    return transformers
