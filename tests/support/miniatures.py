"""Miniature corpora in the layouts of their publishers, and a tiny self-supervised model: what a test can hold.

Speech is that of `tones`, whatever the language: a character is a tone, so that a tiny model learns to write it.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import soundfile

RATE = 16000
SHORT = 0.1  # seconds a character


def say(text: str, alphabet: str, seed: int = 0) -> np.ndarray:
    """The wave of a text: a tone for each character of `alphabet`, silence for a space, a little noise."""
    time = np.arange(int(SHORT * RATE)) / RATE
    pitch = np.geomspace(250, 5000, len(alphabet)) if alphabet else np.zeros(0)
    tones = [
        0.3 * np.hanning(len(time)) * np.sin(2 * np.pi * pitch[alphabet.index(c)] * time) if c != " " else 0 * time
        for c in text
    ]
    wave = np.concatenate([0 * time, *tones, 0 * time])
    return (wave + 0.005 * np.random.default_rng(seed).standard_normal(len(wave))).astype(np.float32)


def write_wave(path: Path, text: str, alphabet: str, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, say(text, alphabet, seed), RATE)
    return path


def letters(texts: Iterable[str]) -> str:
    """All characters of some texts but the space."""
    return "".join(sorted(set("".join(texts)) - {" "}))


def fleurs(
    folder: Path, texts: Sequence[str], readers: int = 1, splits: Sequence[str] = ("train", "dev", "test")
) -> Path:
    """FOLDER/{split}.tsv and FOLDER/audio/{split}/*.wav: every sentence in each split, by several readers."""
    alphabet = letters(texts)
    for s, split in enumerate(splits):
        rows = []
        for i, text in enumerate(texts):
            for reader in range(readers if split == "train" else 1):
                name = f"{10**18 + 10**6 * s + 1000 * i + reader}.wav"
                wave = write_wave(folder / "audio" / split / name, text, alphabet, seed=i + 100 * reader)
                samples = soundfile.info(wave).frames
                raw, characters = f"«{text.capitalize()}».", " ".join(text.replace(" ", "|")) + " |"
                rows.append([str(1500 + i), name, raw, text, characters, str(samples), ("MALE", "FEMALE")[reader % 2]])
        (folder / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def respin(folder: Path, texts: Sequence[str], name: str, readers: int = 1, prefix: str = "IISc_RESPIN_") -> Path:
    """FOLDER/<prefix><name>/D1/<speaker>/*.wav and meta_<name>.json; every sentence is read `readers` times."""
    alphabet = letters(" ".join(texts))
    language = next(part for part in name.split("_") if len(part) == 2)
    meta = {}
    for reader in range(readers):
        speaker = f"9{reader:04d}"
        for i, text in enumerate(texts):
            id = f"IISc_RESPIN_{language}_D1_{speaker}_517297_M_BANK_{900548 + i}_{name}{i}"
            wav = f"D1/{speaker}/{id}.wav"
            said = " ".join(word for word in text.split() if word not in "?,.")
            wave = write_wave(folder / f"{prefix}{name}" / wav, said, alphabet, seed=i + 100 * reader)
            meta[id] = {
                "dialect": "D1", "domain": "Banking", "duration": round(soundfile.info(wave).duration, 2),
                "gender": "MALE", "lid": language, "speaker_id": speaker, "speaker_id_reassigned": "NA", "text": text,
                "text_id": str(900548 + i), "wav_path": wav,
            }  # fmt: skip
    content = json.dumps(meta, ensure_ascii=False, indent=4)
    (folder / f"{prefix}{name}" / f"meta_{name}.json").write_text(content, encoding="utf-8")
    return folder


def librispeech(folder: Path, texts: Sequence[str], subset: str, speaker: str = "84") -> Path:
    """FOLDER/LibriSpeech/<subset>/<speaker>/121/: FLAC files and a transcript file, in capitals."""
    chapter = folder / "LibriSpeech" / subset / speaker / "121"
    chapter.mkdir(parents=True, exist_ok=True)
    lines = []
    for i, text in enumerate(texts):
        id = f"{speaker}-121-{i:04d}"
        write_wave(chapter / f"{id}.flac", text, letters(texts), seed=i)
        lines.append(f"{id} {text.upper()}\n")
    (chapter / f"{speaker}-121.trans.txt").write_text("".join(lines))
    return folder


def tiny_model(
    folder: Path, kind: str = "wav2vec2", do_normalize: bool = True, seed: int = 0, **settings: object
) -> Path:
    """A random model of a few thousand weights, saved as the hub has it: 2 layers of 16 dimensions at 50 Hz."""
    import torch
    import transformers

    make = {
        "wav2vec2": (transformers.Wav2Vec2Config, transformers.Wav2Vec2ForPreTraining),
        "hubert": (transformers.HubertConfig, transformers.HubertModel),
        "wavlm": (transformers.WavLMConfig, transformers.WavLMModel),
    }
    sizes = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
        "conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
    }  # fmt: skip
    pretraining = {"codevector_dim": 8, "proj_codevector_dim": 8, "num_codevectors_per_group": 4}
    configure, build = make[kind]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build(configure(**{**sizes, **pretraining, **settings}))
    model.save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(do_normalize=do_normalize).save_pretrained(folder)
    return folder


def tiny_whisper(folder: Path, seed: int = 0, **settings: object) -> Path:
    """A random Whisper, saved as the hub has it: 2 encoder layers of 16 dimensions at 50 Hz."""
    import torch
    import transformers

    sizes = {
        "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 50, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    }  # fmt: skip
    config = transformers.WhisperConfig(**{**sizes, **settings})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.WhisperForConditionalGeneration(config)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=config.num_mel_bins).save_pretrained(folder)
    return folder
