"""Make a long recording and a text that is roughly right, from the utterances of a corpus: the truth is known.

Utterances are joined with pauses of 0.2 to 1.2 s, speaker after speaker; 5% more utterances of other speakers are
foreign matter. Of the text, 5% of the sentences are deleted, 5% that were not read are inserted, two paragraphs are
swapped and 5% of the words are changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

from wildctc.audio.recordings import read_whole
from wildctc.corpora.utterance import Utterance
from wildctc.files import make_folder, write_text

SHARE = 0.05  # of utterances, sentences and words, for each of the disturbances
PARAGRAPH = 6  # sentences
LEAST_LOUD = 0.003  # root mean square: of Harper Valley, 2% of the utterances are next to silent, and left out
_EDGE = 10**-1.5  # 30 dB below the loudest 20 ms of an utterance: where its speech begins and ends


@dataclass
class Spoken:
    """An utterance of the recording: what became of it, and the number of its sentence in the text (−1: none)."""

    kind: str  # kept, swapped, removed, foreign
    start: float
    end: float
    text: str
    sentence: int = -1
    first_changed: bool = False
    last_changed: bool = False


class Truth(NamedTuple):
    """What was said, in order; and the sentences of the text: what is written, and the number of its utterance or −1.

    The seconds of a paragraph's pause are in `spoken`. `swapped` has the utterances of the first and the second of the
    two paragraphs that are swapped in the text.
    """

    spoken: list[Spoken]
    sentences: list[tuple[str, int]]


def make_recording(
    rows: Sequence[Utterance], strangers: Sequence[Utterance], folder: Path, seed: int, disturbed: bool = True
) -> Truth:
    """Write FOLDER/recording.wav, FOLDER/text.txt and FOLDER/truth.json.

    Args:
        rows: The utterances, in order. Those that are next to silent are left out.
        strangers: From which foreign utterances and sentences that were not read are drawn.
        folder: Where to write.
        seed: Of all draws.
        disturbed: Whether there are foreign utterances, and the text is disturbed.

    Returns:
        The truth.
    """
    rng = np.random.default_rng(seed)
    rate = soundfile.info(rows[0].audio).samplerate
    spoken: list[Spoken] = []
    at = 0.0
    with soundfile.SoundFile(make_folder(folder) / "recording.wav", "w", rate, 1, "PCM_16") as file:

        def add(row: Utterance, wave: np.ndarray, kind: str) -> None:
            nonlocal at
            pause = (0.001 * rng.standard_normal(int(rng.uniform(0.2, 1.2) * rate))).astype(np.float32)
            file.write(pause)
            file.write(wave)
            start, end = _edges(wave, rate)
            at += len(pause) / rate
            spoken.append(Spoken(kind, at + start, at + end, row.text))
            at += len(wave) / rate

        for row in rows:
            if disturbed and rng.random() < SHARE:
                others = [stranger for stranger in strangers if stranger.speaker != row.speaker]
                other = others[rng.integers(len(others))]
                if is_loud(wave := read_whole(other.audio, rate)):
                    add(other, wave, "foreign")
            if is_loud(wave := read_whole(row.audio, rate)):
                add(row, wave, "kept")
    truth = Truth(spoken, _disturb(spoken, [row.text for row in strangers], rng) if disturbed else _as_said(spoken))
    write_text(folder / "text.txt", "".join(f"{text}.\n" for text, _ in truth.sentences))
    write_text(folder / "truth.json", json.dumps([[asdict(s) for s in spoken], truth.sentences]))
    return truth


def read_truth(folder: Path) -> Truth:
    spoken, sentences = json.loads((folder / "truth.json").read_text())
    return Truth([Spoken(**row) for row in spoken], [(text, owner) for text, owner in sentences])


def is_loud(wave: np.ndarray) -> bool:
    return float(np.sqrt(np.square(wave).mean())) >= LEAST_LOUD


def _edges(wave: np.ndarray, rate: int) -> tuple[float, float]:
    """Where the speech of an utterance begins and ends, by its loudness in steps of 20 ms: seconds."""
    step = rate // 50
    loud = np.sqrt(np.square(wave[: len(wave) // step * step].reshape(-1, step)).mean(1))
    there = np.flatnonzero(loud >= _EDGE * loud.max())
    return there[0] / 50, (there[-1] + 1) / 50


def _as_said(spoken: list[Spoken]) -> list[tuple[str, int]]:
    for number, said in enumerate(spoken):
        said.sentence = number
    return [(said.text, number) for number, said in enumerate(spoken)]


def _disturb(spoken: list[Spoken], texts: list[str], rng: np.random.Generator) -> list[tuple[str, int]]:
    """The sentences of the text in order. Marks what was done in `spoken`."""
    own = [i for i, s in enumerate(spoken) if s.kind == "kept"]
    for i in rng.choice(own, round(SHARE * len(own)), replace=False):
        spoken[i].kind = "removed"
    paragraphs = [own[k : k + PARAGRAPH] for k in range(0, len(own), PARAGRAPH)]
    a = int(rng.integers(len(paragraphs) - 2))
    for i in paragraphs[a] + paragraphs[a + 1]:
        if spoken[i].kind == "kept":
            spoken[i].kind = "swapped"
    paragraphs[a], paragraphs[a + 1] = paragraphs[a + 1], paragraphs[a]
    vocabulary = sorted({word for text in texts for word in text.split()})
    long = [text for text in texts if len(text.split()) >= 3]
    sentences: list[tuple[str, int]] = []
    for i in [i for paragraph in paragraphs for i in paragraph]:
        if rng.random() < SHARE:
            sentences.append((str(rng.choice(long)), -1))
        if spoken[i].kind == "removed":
            continue
        words = spoken[i].text.split()
        changed = rng.random(len(words)) < SHARE
        words = [str(rng.choice(vocabulary)) if c else word for word, c in zip(words, changed, strict=True)]
        spoken[i].first_changed, spoken[i].last_changed = bool(changed[0]), bool(changed[-1])
        spoken[i].sentence = len(sentences)
        sentences.append((" ".join(words), i))
    return sentences
