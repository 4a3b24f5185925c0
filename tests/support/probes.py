"""Small probe files with sound, whose findings are known: what a page needs, without a model."""

from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import soundfile

from wildctc.probe.records import ProbedToken, ProbedUtterance, ProbedWord, write_probe

RATE = 16000
BEGIN, STEP = 0.2, 0.11  # seconds before the first character, and of each
SETTINGS = {"model": "runs/tiny", "self_loop": 0.0}


def probed(
    id: str,
    text: str,
    changed: dict[int, str] | None = None,
    missing: dict[int, str] | None = None,
    speaker: str | None = "ann",
    audio: str = "",
    offset: float = 0.0,
    channel: int = 0,
) -> ProbedUtterance:
    """An utterance with a token for each character.

    changed: the number of a word → what was heard in its place ("": nothing). missing: the number of a word → what was
    heard before it and is not written.
    """
    changed, missing = changed or {}, missing or {}
    tokens = [
        ProbedToken(char, i, i + 1, BEGIN + STEP * i, BEGIN + STEP * (i + 1), 0.02, char) for i, char in enumerate(text)
    ]
    words: list[ProbedWord] = []
    gaps, between = [0.01] * (len(text) + 1), [""] * (len(text) + 1)
    heard, begin = [], 0
    for number, word in enumerate(text.split(" ") if text else []):
        stop, first = begin + len(word), max(0, begin - 1)
        said = changed.get(number, word)
        if number in missing:
            gaps[first], between[first] = 0.9, missing[number]
            heard.append(missing[number])
        for tag, i, j, k, l in SequenceMatcher(None, word, said, autojunk=False).get_opcodes() if said != word else []:
            if tag == "insert":
                gaps[begin + i], between[begin + i] = 0.9, said[k:l]
            elif tag != "equal":
                for token in tokens[begin + i : begin + j]:
                    token.bypass, token.heard = 0.95, ""
        bypass = 0.9 if number in changed else 0.05
        words.append(
            ProbedWord(word, begin, stop, first, stop - 1, tokens[begin].start, tokens[stop - 1].end, bypass, said)
        )
        heard += [said] if said else []
        begin = stop + 1
    duration = 2 * BEGIN + STEP * len(text)
    return ProbedUtterance(
        id, audio, offset, duration, channel, speaker, text, " ".join(heard), tokens, words, gaps, between
    )


def voice(utterance: ProbedUtterance, rate: int = RATE) -> np.ndarray:
    """A tone for each character, silence for a space: (samples,) float32."""
    time = np.arange(round(utterance.duration * rate)) / rate
    wave = np.zeros(len(time))
    for token in utterance.tokens:
        inside = (time >= token.start) & (time < token.end)
        bump = np.sin(np.pi * (time[inside] - token.start) / (token.end - token.start))
        loud = 0.0 if token.text == " " else 0.15 + 0.03 * (ord(token.text[0]) % 9)
        wave[inside] = loud * bump * np.sin(2 * np.pi * (200 + 17 * (ord(token.text[0]) % 31)) * time[inside])
    return (wave + 0.003 * np.random.default_rng(0).standard_normal(len(wave))).astype(np.float32)


def write(folder: Path, utterances: list[ProbedUtterance]) -> Path:
    """Write FOLDER/probe.jsonl, and a WAV file for each utterance that names none. The utterances stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [replace(u, audio=u.audio or f"{number}.wav") for number, u in enumerate(utterances)]
    for utterance, row in zip(utterances, rows, strict=True):
        if not utterance.audio:
            soundfile.write(folder / row.audio, voice(utterance), RATE)
    write_probe(folder / "probe.jsonl", SETTINGS, rows)
    return folder / "probe.jsonl"


SCRIPTS = {
    "english": probed("english", "the quick brown fox jumps over the lazy dog", {1: "quack", 7: ""}, {5: "right"}),
    "hindi": probed("hindi", "मेरी किताब क्षत्रिय के पास है", {1: "किताबें", 2: "क्षत्रीय"}, speaker="बीना"),
    "tamil": probed("tamil", "நான் தமிழ் கொஞ்சம் பேசுவேன்", {2: "கொஞ்சமும்"}, speaker="தமிழ்"),
    "arabic": probed("arabic", "السلام عليكم ورحمة الله وبركاته", {2: "ورحمت"}, {4: "تعالى"}, speaker="ليلى"),
    "emoji": probed("emoji", "i am 👩‍👩‍👧 happy 🇲🇾 today 👍🏽", {3: "hoppy", 4: ""}, speaker=None),
}
