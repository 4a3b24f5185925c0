"""How fast are front ends? `python benchmarks/front_ends.py [NAME ...]`

Each NAME is what `features.name` takes: fbank, moonshine-tiny, moonshine-base (these three by default), an .onnx file,
hf:NAME or a folder. A wave of noise of --seconds goes through each of them, in turns, on one thread. Shown are the
processor time, which other work on the machine changes little, and the time that passed: the median of --rounds, with
the least and the most.

With --padding MANIFEST it is asked instead how much features depend on silence behind the sound: utterances of about 2,
5 and 12 s are padded to 30 s, as Whisper's own programs do, and the features of the sound itself are compared with
those without padding. Each dimension is normalised within the utterance, as training normalises it over the corpus.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from wildctc.audio.sound_files import load_audio
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.utterance import Utterance
from wildctc.features.front_end import FrontEnd, make_front_end


def measure(front_ends: dict[str, FrontEnd], seconds: float, rounds: int) -> dict[str, np.ndarray]:
    """(rounds, 2) for each front end: seconds of the processor, and seconds that passed."""
    wave = (np.random.default_rng(0).normal(size=round(16000 * seconds)) / 10).astype(np.float32)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in front_ends}
    for front_end in front_ends.values():
        front_end.extract(wave)  # loads the model
    for _ in range(rounds):
        for name, front_end in front_ends.items():
            processor, clock = time.process_time(), time.perf_counter()
            front_end.extract(wave)
            found[name].append((time.process_time() - processor, time.perf_counter() - clock))
    return {name: np.array(times) for name, times in found.items()}


def depends_on_padding(front_end: FrontEnd, utterance: Utterance, silences: Sequence[float]) -> list[float]:
    """The correlation of features with those of the sound padded to 30 s, for each number of seconds of silence."""
    wave = load_audio(utterance, 16000)

    def padded(samples: int) -> np.ndarray:
        x = front_end.extract(np.pad(wave, (0, samples - len(wave))))[: front_end.frames(len(wave))]
        normalised: np.ndarray = (x - x.mean(0)) / (x.std(0) + 1e-6)
        return normalised.ravel()

    whole = padded(30 * 16000)
    lengths = [min(30 * 16000, len(wave) + round(16000 * silence)) for silence in silences]
    return [float(np.corrcoef(padded(length), whole)[0, 1]) for length in lengths]


def print_padding(name: str, front_end: FrontEnd, manifest: Path, count: int) -> None:
    """Correlations by length of utterance and silence."""
    utterances, silences = load_manifest(manifest), (0.0, 1.0, 5.0)
    for seconds in (2, 5, 12):
        near = sorted(utterances, key=lambda u: abs(u.duration - seconds))[:count]
        found = np.array([depends_on_padding(front_end, utterance, silences) for utterance in near])
        for silence, column in zip(silences, found.T, strict=True):
            print(
                f"{name}: {count} utterances of about {seconds} s, {silence:g} s of silence: "
                f"correlation {column.mean():.3f}, least {column.min():.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["fbank", "moonshine-tiny", "moonshine-base"], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--padding", type=Path, metavar="MANIFEST")
    parser.add_argument("--utterances", type=int, default=20, help="of each length, with --padding")
    options = parser.parse_args()
    torch.set_num_threads(1)
    front_ends = {name: make_front_end({"name": name}) for name in options.names}
    if options.padding:
        for name, front_end in front_ends.items():
            print_padding(name, front_end, options.padding, options.utterances)
        return
    print(f"{options.seconds:g} s of sound, one thread, median of {options.rounds} rounds (least–most)")
    for name, times in measure(front_ends, options.seconds, options.rounds).items():
        front_end, (processor, clock) = front_ends[name], times.T
        shown = [f"{np.median(t):.3f} s ({t.min():.3f}–{t.max():.3f})" for t in (processor, clock)]
        print(
            f"{name}: {' × '.join(map(str, front_end.shape))} at {front_end.frame_rate:.1f} Hz; "
            f"processor {shown[0]}, {options.seconds / np.median(processor):.0f}× real time; passed {shown[1]}"
        )


if __name__ == "__main__":
    main()
