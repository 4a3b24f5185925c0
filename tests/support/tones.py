"""A corpus that a tiny model learns in seconds: each letter is a tone, a space is silence."""

import json
from pathlib import Path

import numpy as np
import soundfile

LETTERS = "abcdef"
RATE = 16000

RECIPE = """
data: {{dir: {folder}, train: train.jsonl, dev: dev.jsonl, batch_seconds: 4, workers: 1, cache: {folder}/features}}
features: {{name: fbank, num_bins: 40}}
encoder: {{kind: conformer, d_model: 32, heads: 2, blocks: 1, ff_dim: 64, kernel: 7, subsampling: 2}}
spec_augment: {{freq_masks: 1, freq_width: 4, time_masks: 1}}
optimizer: {{lr: 1.0e-2, warmup_steps: 20, decay: cosine}}
training: {{epochs: 5, average: 2, checkpoint_steps: 5}}
"""


def say(text: str, rng: np.random.Generator) -> np.ndarray:
    """The wave of a text, 0.12 s a letter, with a little noise."""
    time = np.arange(int(0.12 * RATE)) / RATE
    envelope = np.hanning(len(time))
    tones = [0.3 * envelope * np.sin(2 * np.pi * 300 * 1.35 ** LETTERS.find(c) * time) * (c != " ") for c in text]
    wave = np.concatenate(tones)
    return (wave + 0.005 * rng.standard_normal(len(wave))).astype(np.float32)


def sentence(rng: np.random.Generator) -> str:
    words = ["".join(rng.choice(list(LETTERS), rng.integers(2, 5), replace=False)) for _ in range(rng.integers(1, 4))]
    return " ".join(words)


def make_corpus(folder: Path, sizes: dict[str, int] | None = None, seed: int = 0) -> Path:
    """Write FOLDER/{train,dev,test}.jsonl with their audio, and FOLDER/recipe.yaml; returns the recipe's path."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (sizes or {"train": 60, "dev": 10, "test": 10}).items():
        rows = []
        for i in range(size):
            text = sentence(rng)
            soundfile.write(folder / f"{split}{i}.wav", say(text, rng), RATE)
            rows.append({"id": f"{split}{i}", "audio": f"{split}{i}.wav", "text": text, "speaker": "tone"})
        write_rows(folder / f"{split}.jsonl", rows)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder))
    return recipe


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
