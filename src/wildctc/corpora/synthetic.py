"""Make speech with espeak-ng, in any of its languages and in many voices. The same seed gives the same bytes.

espeak-ng is under the GPL. So it is an extra (`demo`), which a separate process loads, and never a dependency.
"""

import contextlib
import io
import json
import random
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wildctc.corpora import espeak
from wildctc.corpora.utterance import SPLITS
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import make_folder, write_text, writing
from wildctc.json_lines import read_lines, read_rows
from wildctc.progress import progress

# variants that are effects, not people
_NOT_PEOPLE = ("whisper", "croak", "demonic", "fast", "robo", "unirobot", "anikarobot", "tweaky", "storm", "ricishay")
_WAITING = 4  # requests that are sent to each process in advance


@dataclass(frozen=True)
class Voice:
    """A voice of espeak-ng.

    Attributes:
        language: A language, such as "en" or "hi".
        variant: A voice variant, such as "m3".
        rate: Words per minute.
        pitch: From 0 to 99.
    """

    language: str
    variant: str
    rate: int = 170
    pitch: int = 50

    @property
    def name(self) -> str:
        """The name of the speaker.

        >>> Voice("hi", "Mr serious", 150, 40).name
        'hi-mr-serious-150-40'
        """
        return f"{self.language}-{self.variant}-{self.rate}-{self.pitch}".lower().replace(" ", "-")


def languages() -> dict[str, str]:
    """List the languages of espeak-ng.

    Returns:
        Names in lower case ("en", "en-us", "hi") → espeak-ng's own names of their voices.
    """
    folder = _data() / "lang"
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.name.lower())
    return {path.name.lower(): str(path.relative_to(folder)) for path in files}


def _variants() -> list[str]:
    """List the voice variants that sound like people."""
    names = sorted(path.name for path in (_data() / "voices" / "!v").iterdir())
    return [name for name in names if not name.lower().startswith(_NOT_PEOPLE)]


def cast(language: str, size: int, seed: int = 0) -> list[Voice]:
    """Choose different voices of a language, with variants, tempo and pitch at random.

    Args:
        language: A language of espeak-ng.
        size: The number of voices.
        seed: The same seed gives the same voices.

    Returns:
        The voices.

    >>> [voice.name for voice in cast("en", 2, seed=1)]  # doctest: +SKIP
    ['en-linda-155-58', 'en-m7-174-37']
    """
    rng = random.Random(f"cast {language} {seed}")
    names = _variants()
    rng.shuffle(names)
    voices: dict[Voice, None] = {}
    while len(voices) < size:
        voices[Voice(language, names[len(voices) % len(names)], rng.randrange(130, 176), rng.randrange(30, 71))] = None
    return list(voices)


def speak(sayings: Sequence[tuple[str, Voice]], processes: int = 2) -> Iterator[tuple[np.ndarray, int]]:
    """Speak texts.

    Args:
        sayings: Texts, each with its voice.
        processes: How many processes speak at the same time.

    Returns:
        An iterator over the samples (int16) of each text, in order, with their sampling rate.

    Raises:
        WildCTCError: espeak-ng does not have the language or the variant.

    >>> [(wave, rate)] = speak([("good morning", Voice("en", "m3"))])
    >>> wave.dtype, rate, 0.5 < len(wave) / rate < 1.5
    (dtype('int16'), 22050, True)
    """
    known, named = languages(), set(_variants())
    for _, voice in sayings:
        if voice.language.lower() not in known:
            raise WildCTCError(f"espeak-ng has no language {voice.language!r}; it has: {', '.join(known)}")
        if voice.variant not in named:
            raise WildCTCError(f"espeak-ng has no voice variant {voice.variant!r}; it has: {', '.join(sorted(named))}")
    return _spoken(sayings, known, processes)


def _spoken(
    sayings: Sequence[tuple[str, Voice]], known: dict[str, str], processes: int
) -> Iterator[tuple[np.ndarray, int]]:
    with contextlib.ExitStack() as stack:
        speakers = [stack.enter_context(_Speaker()) for _ in range(max(1, min(processes, len(sayings))))]
        waiting: deque[tuple[_Speaker, str]] = deque()
        for i, (text, voice) in enumerate(sayings):
            speaker = speakers[i % len(speakers)]
            speaker.ask(f"{known[voice.language.lower()]}+{voice.variant}", voice, text)
            waiting.append((speaker, text))
            if len(waiting) == _WAITING * len(speakers):
                yield _answer(*waiting.popleft())
        while waiting:
            yield _answer(*waiting.popleft())


def _answer(speaker: "_Speaker", text: str) -> tuple[np.ndarray, int]:
    return speaker.answer(text), speaker.sampling_rate


class _Speaker:
    """A process running `espeak.py`."""

    def __enter__(self) -> "_Speaker":
        command = [sys.executable, "-I", espeak.__file__, _loader().get_library_path(), str(_data())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin
        assert self.process.stdout
        self.requests, self.answers = self.process.stdin, self.process.stdout
        self.sampling_rate = self._length("start")
        if self.sampling_rate <= 0:
            raise WildCTCError(f"espeak-ng does not start with its data in {_data()}: install espeakng-loader again")
        return self

    def __exit__(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            self.requests.close()
        self.answers.close()
        self.process.wait()

    def ask(self, name: str, voice: Voice, text: str) -> None:
        try:
            self.requests.write(json.dumps([name, voice.rate, voice.pitch, text]).encode() + b"\n")
            self.requests.flush()
        except OSError:
            raise WildCTCError(f"espeak-ng failed before {text[:60]!r}") from None

    def answer(self, text: str) -> np.ndarray:
        return np.frombuffer(self._read(self._length(text), text), "<i2")

    def _length(self, text: str) -> int:
        return int(espeak.LENGTH.unpack(self._read(espeak.LENGTH.size, text))[0])

    def _read(self, size: int, text: str) -> bytes:
        content = self.answers.read(size)
        if len(content) < size:
            raise WildCTCError(f"espeak-ng failed at {text[:60]!r}")
        return content


# --------------------------------------------------------------------------------------------------------- a corpus


def synthesize(
    source: str | Path, folder: str | Path, *, language: str = "en", voices: int = 40, seed: int = 0, processes: int = 2
) -> Path:
    """Speak the sentences of a file; writes FOLDER/audio/*.flac and FOLDER/manifest.jsonl.

    With ten voices or more, a tenth of them speaks dev and another tenth test; these voices do not occur in train.

    Args:
        source: One sentence per line, or JSON lines with `text` and optionally `id`, `split` and `spoken` (what is
            said, if that is not `text`). Of ten rows without a split, one belongs to dev and one to test.
        folder: The folder to write.
        language: A language of espeak-ng.
        voices: The number of voices.
        seed: The same seed gives the same bytes.
        processes: How many processes speak at the same time.

    Returns:
        The manifest.
    """
    rows = _sentences(Path(source))
    voices_of = _by_split(cast(language, voices, seed))
    rng = random.Random(f"voices {seed}")
    chosen = [rng.choice(voices_of[row["split"]]) for row in rows]
    audio = make_folder(Path(folder) / "audio")
    spoken = speak([(row.pop("spoken"), voice) for row, voice in zip(rows, chosen, strict=True)], processes)
    waves = progress(spoken, total=len(rows), desc="speaking", unit="utt", leave=False)
    for row, voice, (wave, rate) in zip(rows, chosen, waves, strict=True):
        if not wave.any():
            raise WildCTCError(f"{source}: espeak-ng has nothing to say for {row['id']}: {row['text'][:60]!r}")
        path = audio / f"{row['id']}.flac"
        with writing(path):
            path.write_bytes(_flac(wave, rate))
        row |= {"audio": f"audio/{row['id']}.flac", "duration": len(wave) / rate, "speaker": voice.name}
    manifest = Path(folder) / "manifest.jsonl"
    write_text(manifest, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return manifest


def _sentences(source: Path) -> list[dict[str, Any]]:
    if source.name.endswith((".jsonl", ".jsonl.gz")):
        read = [(line, dict(row)) for line, row in read_rows(source)]
    else:
        read = [(line, {"text": text.strip()}) for line, text in read_lines(source)]
    if not read:
        raise WildCTCError(f"{source}: no sentences in it")
    rows: dict[str, dict[str, Any]] = {}
    for n, (line, row) in enumerate(read):
        said = row.get("spoken", row.get("text"))
        if not isinstance(row.get("text"), str) or not isinstance(said, str):
            raise WildCTCError(f'{source}:{line}: no "text", or a "spoken" that is not a text')
        split = row.get("split") or {8: "dev", 9: "test"}.get(n % 10, "train")
        id = str(row.get("id") or f"{split}-{n + 1:05d}")
        if split not in SPLITS:
            raise WildCTCError(f"{source}:{line}: split {split!r} is none of {', '.join(SPLITS)}")
        if id in rows or "/" in id:
            raise WildCTCError(f"{source}:{line}: id {id!r} occurs twice, or cannot be the name of a file")
        rows[id] = {"id": id, "text": row["text"], "spoken": said, "split": split}
    return list(rows.values())


def _by_split(voices: list[Voice]) -> dict[str, list[Voice]]:
    if not voices:
        raise WildCTCError("--voices must be at least 1")
    tenth = len(voices) // 10
    if tenth == 0:
        return dict.fromkeys(SPLITS, voices)
    return {"dev": voices[:tenth], "test": voices[tenth : 2 * tenth], "train": voices[2 * tenth :]}


def _flac(wave: np.ndarray, rate: int) -> bytes:
    try:
        import soundfile
    except ImportError:
        raise MissingExtra("soundfile", "train") from None
    content = io.BytesIO()
    soundfile.write(content, wave, rate, format="FLAC", subtype="PCM_16")
    return content.getvalue()


def _data() -> Path:
    return Path(_loader().get_data_path())


def _loader() -> Any:
    try:
        import espeakng_loader
    except ImportError:
        raise MissingExtra("espeakng-loader", "demo") from None
    return espeakng_loader
