"""A CTC checkpoint of Hugging Face's transformers, given by its folder, as a model that can be probed.

For checkpoints that write characters: their tokenizer's tokens are single characters, its word delimiter the space,
its padding token the blank. Utterances go through the model one by one, so that padding cannot touch the result.
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
from wildctc.text import Normalizer

UNKNOWN = "\ufffd"  # what the checkpoint's token for unknown characters is shown as


class Checkpoint:
    """What probing asks of a model, from the files in `folder` alone.

    The blank becomes label 0; other labels keep their order.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        transformers = _transformers()
        if not (self.folder / "config.json").is_file():
            raise WildCTCError(f"{folder}: no Hugging Face checkpoint there (no config.json); give a local folder")
        try:
            extractor = transformers.AutoFeatureExtractor.from_pretrained(self.folder, local_files_only=True)
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
            self._model = self._load(transformers)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = str(error).strip().split("\n")[0]
            raise WildCTCError(f"{folder}: not a CTC checkpoint with its tokenizer: {reason}") from None
        self.front_end = Waves(extractor)
        outputs = int(self._model.config.vocab_size)
        blank = self._model.config.pad_token_id
        if blank is None or not 0 <= blank < outputs:
            raise WildCTCError(f"{folder}: config.json has no pad_token_id among its {outputs} outputs, which is blank")
        self._order = [blank, *(label for label in range(outputs) if label != blank)]
        self.units = CheckpointUnits(tokenizer, self._order, str(folder))
        rate = self.front_end.sampling_rate
        one, two = (len(self.batch_logits([self.front_end.extract(np.zeros(n * rate, np.float32))])[0]) for n in (2, 4))
        self.frame_rate = (two - one) / 2.0

    def _load(self, transformers: Any) -> Any:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        model, report = transformers.AutoModelForCTC.from_pretrained(
            self.folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
        # a checkpoint without its output layer would get a random one
        if missing := sorted(key for key in report["missing_keys"] if "masked_spec_embed" not in key):
            raise WildCTCError(f"{self.folder}: no weights for {missing[0]}: not fine-tuned with CTC?")
        return model.eval().requires_grad_(False)

    def to(self, device: str) -> Checkpoint:
        self._model.to(device)
        return self

    def fingerprint(self) -> str:
        """A short hash of everything in the folder that decides the logits and their names."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.iterdir()):
            if path.suffix in (".json", ".safetensors", ".bin"):
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:16]

    @torch.inference_mode()
    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Logits (T', V), float32 on the CPU, of each utterance from what `front_end.extract` gave (T, F)."""
        return [self._logits(torch.from_numpy(x)) for x in features]

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        x = x.squeeze(1) if self.front_end.shape == (1,) else x
        try:
            logits = self._model(x.unsqueeze(0).to(self._model.device)).logits[0]
        except (RuntimeError, ValueError):
            if len(x) >= self.front_end.frame_rate:
                raise
            return torch.empty(0, len(self._order))  # shorter than a convolution is wide
        return logits.float().cpu()[:, self._order]


class Waves:
    """A checkpoint's own preparation of a wave: the normalised wave (samples, 1), or a spectrogram (frames, dim)."""

    digest = ""

    def __init__(self, extractor: Any) -> None:
        self._extractor = extractor
        self.sampling_rate = int(extractor.sampling_rate)
        second = self.extract(np.zeros(self.sampling_rate, np.float32))
        self.shape = second.shape[1:]
        self.frame_rate = float(len(second))
        self.name = type(extractor).__name__

    def frames(self, samples: int) -> int:
        return len(self.extract(np.zeros(samples, np.float32)))

    def extract(self, wave: np.ndarray) -> np.ndarray:
        if len(wave) == 0:
            return np.empty((0, *self.shape), np.float32)
        found = self._extractor(wave, sampling_rate=self.sampling_rate, return_tensors="np")
        x = np.asarray(found["input_values" if "input_values" in found else "input_features"][0], dtype=np.float32)
        return x[:, None] if x.ndim == 1 else x


class CheckpointUnits:
    """The characters that a checkpoint writes. order: its labels, blank first.

    Transcripts are brought into the vocabulary's case, and lose their punctuation if it has none; other characters
    that it lacks are `missing`.
    """

    kind = "char"

    def __init__(self, tokenizer: Any, order: Sequence[int], where: str) -> None:
        strings = {label: token for token, label in tokenizer.get_vocab().items()}
        space = getattr(tokenizer, "word_delimiter_token", None) or "|"
        special = set(tokenizer.all_special_tokens) - {space}
        self.tokens = []
        for label in order:
            token = strings.get(label, "")
            if token == tokenizer.unk_token:
                token = UNKNOWN
            elif token in special or label == order[0]:
                token = ""
            self.tokens.append(" " if token == space else token)
        if long := [token for token in self.tokens if len(token) > 1]:
            raise WildCTCError(f"{where}: token {long[0]!r} has several characters: only characters can be probed")
        # Unicode's NFC takes some letters apart, such as ड़ (U+095C): one token, then, of two code points.
        before, self.tokens = self.tokens, [unicodedata.normalize("NFC", token) for token in self.tokens]
        labels = [label for label, token in enumerate(before) if token not in ("", UNKNOWN)]
        labels.sort(key=lambda label: self.tokens[label] == before[label])  # the last one of two that NFC makes equal
        self._ids = {self.tokens[label]: label for label in labels}
        parts = sorted((token for token in self._ids if len(token) > 1), key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, parts), "."]), re.DOTALL)
        self.normalizer = _normalizer(self._ids)
        self.upper = any(c.isupper() for c in self._ids) and not any(c.islower() for c in self._ids)

    def _text(self, text: str) -> str:
        text = self.normalizer(text)
        return text.upper() if self.upper else text

    def encode(self, text: str) -> list[int]:
        return [self._ids[char] for char in self._pattern.findall(self._text(text))]

    def missing(self, text: str) -> list[str]:
        return [char for char in dict.fromkeys(self._pattern.findall(self._text(text))) if char not in self._ids]


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
