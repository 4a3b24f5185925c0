"""Text that was not read takes no time from the words beside it, on logits that are made up."""

import numpy as np
import torch

from wildctc.audio.recordings import Recording
from wildctc.longform import alignment
from wildctc.longform.alignment import align_text
from wildctc.longform.written import as_spoken, parse_text
from wildctc.recognizer.windows import LongLogits
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits

UNITS = CharUnits(["<blank>", " ", *"abcdefgh"], Normalizer(strip_punctuation=True))
RATE = 50.0


def spoken(sentences: list[str]) -> tuple[LongLogits, list[float]]:
    """Sharp logits of sentences with pauses of 0.5 s between them, and the second at which each word begins."""
    labels, starts = [0] * 25, []
    for sentence in sentences:
        for word in sentence.split():
            starts.append(len(labels) / RATE)
            for label in UNITS.encode(word):
                labels += [label, label, 0]
            labels += [*UNITS.encode(" "), 0]
        labels += [0] * 25
    noise = torch.randn(len(labels), 10, generator=torch.Generator().manual_seed(0))
    logits = noise + 10.0 * torch.nn.functional.one_hot(torch.tensor(labels), 10)
    return LongLogits(logits, RATE, 0.0, len(labels) / RATE), starts


def test_a_chapter_that_was_not_read_moves_nothing_else(monkeypatch):
    rng = np.random.default_rng(0)
    sentences = [" ".join("".join(rng.choice(list("abcdef"), 4)) for _ in range(4)) for _ in range(60)]
    logits, starts = spoken(sentences)
    chapter = ["ghgh " * 7 + "ghgh"] * 40
    text = parse_text("".join(f"{sentence}.\n" for sentence in sentences[:30] + chapter + sentences[30:]))

    def right() -> float:
        sound = Recording(16000, logits.duration, [])
        found = align_text(UNITS, sound, logits, text, as_spoken(text, UNITS))
        words = [word for word in found.words if "gh" not in word.text]
        return float(np.mean([w.read and abs(w.start - start) < 0.1 for w, start in zip(words, starts, strict=True)]))

    assert right() >= 0.98
    monkeypatch.setattr(alignment, "_ATTEMPTS", 1)  # with small rests only, words beside the chapter are lost
    assert right() < 0.95
