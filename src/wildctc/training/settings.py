"""The settings of a run, with their defaults and a line about each, which `wildctc train --help` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


def _setting(default: Any, about: str) -> Any:
    """A field with its default and a line about it, which `wildctc train --help` prints."""
    return field(default=default, metadata={"about": about})


@dataclass
class DataConfig:
    """Manifests, text and batches."""

    dir: str = _setting(".", "the folder that `train` and `dev` are relative to")
    train: str = _setting("train.jsonl.gz", "the manifest to train on")
    dev: str = _setting("dev.jsonl.gz", "the manifest for validation after each epoch")
    audio_root: str | None = _setting(None, "where the audio is now, if its folder was moved after `wildctc prepare`")
    lower: bool = _setting(False, "transcripts in lower case")
    strip_punctuation: bool = _setting(False, "transcripts without punctuation")
    keep_invisible: bool = _setting(False, "transcripts with zero-width spaces, marks of direction and the like")
    variants: str | None = _setting(None, "a file of words that are the same, written differently")
    also: str | None = _setting(None, "a file with further transcripts of the training utterances, by id")
    texts: Literal["equal", "shares"] = _setting("equal", "several transcripts: any, or words by their share")
    units: Literal["characters", "sentencepiece", "phones"] = _setting("characters", "what the model writes")
    lexicon: str | None = _setting(
        None, "the pronunciations of words, a word and its phones on each line (phones only)"
    )
    vocab_size: int = _setting(200, "how many pieces (SentencePiece only)")
    speeds: list[float] = field(
        default_factory=lambda: [1.0], metadata={"about": "one copy of the training data for each, played so fast"}
    )
    max_duration: float = _setting(30.0, "seconds; longer utterances are not trained on: attention grows as the square")
    batch_seconds: float = _setting(120.0, "seconds of audio in a batch, with its padding")
    max_bad: float = _setting(0.01, "the share of unusable utterances above which the run stops")
    window: int = _setting(10000, "shards only: utterances that are shuffled and grouped by length together")
    lanes: int | None = _setting(None, "shards only: parts that are read side by side; null: one a process")
    streams: int = _setting(1, "streams of a lane, each read by a process from its own shards (shards only)")
    workers: int = _setting(1, "processes that load data; 0: the training process does it")
    feature_workers: int | None = _setting(
        None, "processes that compute features before training; null: as many as there are cores"
    )
    cache: str | None = _setting(
        "features", "the folder of computed features, which runs can share; null: none are kept"
    )
    cache_limit_gb: float = _setting(100.0, "features that take more than that are refused before they are computed")


@dataclass
class FeatureConfig:
    """The front end: what `features.make_front_end` takes."""

    name: str = _setting("fbank", "fbank, moonshine-tiny, moonshine-base, an .onnx or .ort file, hf:NAME, or a folder")
    num_bins: int = _setting(80, "filterbank energies in a frame (fbank only)")
    layers: Literal["weighted", "last"] = _setting(
        "weighted", "of a Hugging Face model: a learned sum of all, or the last"
    )


@dataclass
class EncoderConfig:
    """The encoder: the fields of `encoders.make_encoder` that recipes set."""

    kind: Literal["e_branchformer", "conformer"] = _setting("e_branchformer", "the architecture")
    d_model: int = _setting(256, "width; even, and a multiple of heads")
    heads: int = _setting(4, "attention heads in a block")
    blocks: int = _setting(12, "how many blocks, one after the other")
    ff_dim: int = _setting(1024, "width inside the feed-forward parts and an E-Branchformer's cgMLP")
    kernel: int = _setting(31, "frames under every depthwise convolution; odd")
    subsampling: int = _setting(4, "frames of features for one of the encoder: 1, 2 or 4")
    subsampling_conv: Literal["conv2d", "conv1d"] = _setting("conv2d", "conv1d suits features of a pretrained model")
    dropout: float = _setting(0.1, "the share of activations and attention weights that is dropped")


@dataclass
class SpecAugmentConfig:
    """SpecAugment; all zeros switch it off."""

    time_warp: int = _setting(5, "frames by which a point inside an utterance may move; 0: no warping")
    freq_masks: int = _setting(2, "bands of dimensions that are masked")
    freq_width: int = _setting(27, "dimensions that one of them covers at most")
    time_masks: int = _setting(5, "stretches of time that are masked")
    time_ratio: float = _setting(0.05, "the share of an utterance that one of them covers at most")


@dataclass
class ScheduleConfig:
    """Overrides of the criterion's published weights and schedule; null keeps what the criterion's name says."""

    bypass: float | None = _setting(
        None, "weight of token bypasses in the first epoch, a natural logarithm; null: published"
    )
    bypass_tau: float | None = _setting(None, "what it is multiplied by from epoch to epoch (epoch schedules)")
    self_loop: float | None = _setting(None, "likewise of self-loops")
    self_loop_tau: float | None = _setting(None, "likewise")
    word_bypass: float | None = _setting(None, "likewise of word bypasses")
    word_bypass_tau: float | None = _setting(None, "likewise")
    h_low: float | None = _setting(
        None, "the smoothed held-out entropy at which weights are fully relaxed (names in -h)"
    )
    kappa: float | None = _setting(None, "the exponent of progress towards h_low: the larger, the later weights relax")
    alpha: float | None = _setting(None, "how much the latest epoch counts in the smoothed entropy, 0 to 1")
    epoch_scale: float | None = _setting(
        None, "epoch e counts as 1 + (e − 1)·epoch_scale: 30 ÷ epochs for other lengths"
    )
    star: float | None = _setting(None, "★ as a share of the non-blank probability; null: its mean, or the criterion's")
    star_final: float | None = _setting(None, "what this share approaches (stc only)")
    star_half: float | None = _setting(None, "after how many epochs it is half-way there (stc only)")


@dataclass
class RatesConfig:
    """Noise rates, of criteria that estimate them (otc-t-em, otc-w-em, otc-tw-em)."""

    by: str | None = _setting(None, "a field of the manifest, such as speaker: each of its values has its own rates")
    start: float | None = _setting(None, "the first rates; null: measured after epochs of plain CTC, 0.001 without")
    prior: float | None = _setting(None, "how many tokens, positions or words the prior is worth; null: 100")


@dataclass
class LabelSmoothingConfig:
    """CTC with label smoothing: the outputs of each frame are drawn towards equal probabilities."""

    weight: float = _setting(0.0, "its share of the loss, below 1, such as 0.05; 0: none")


@dataclass
class CRCTCConfig:
    """CR-CTC: two copies of each batch with different masks, whose outputs shall agree."""

    weight: float = _setting(0.0, "what the disagreement counts beside the loss, such as 0.2; 0: none, one copy")


@dataclass
class InterCTCConfig:
    """InterCTC: the loss of inner blocks of the encoder, beside that of the last one."""

    layers: list[int] | None = field(
        default=None, metadata={"about": "the blocks, counted from 1, such as 6 or 3 6 9; null: none"}
    )
    weight: float = _setting(0.3, "the share of the loss that they have together, below 1")


@dataclass
class OptimizerConfig:
    """Adam with warm-up."""

    lr: float = _setting(2e-3, "the learning rate at the end of the warm-up")
    warmup_steps: int = _setting(15000, "optimiser steps in which it rises from 0")
    decay: Literal["sqrt", "cosine"] = _setting("sqrt", "after the warm-up 1/√step, or a cosine to 0 at the last epoch")
    weight_decay: float = _setting(1e-6, "Adam's L2 penalty")
    clip: float = _setting(5.0, "the norm that gradients are cut to")
    accumulate: int = _setting(1, "batches in an optimiser step")


@dataclass
class TrainingConfig:
    """The loop."""

    epochs: int = _setting(30, "how many at most")
    ctc_epochs: int = _setting(0, "this many epochs at the start are plain CTC; then the criterion's schedule begins")
    patience: int | None = _setting(None, "stop after this many epochs without a better `select_by`; null: never")
    select_by: Literal["cer+deletions", "wer", "ctc_loss", "loss"] = _setting(
        "cer+deletions", "what the best epochs are best by, on dev"
    )
    average: int = _setting(10, "how many of the best epochs have their weights averaged at the end")
    precision: Literal["float32", "bfloat16"] = _setting("float32", "of the model's forward pass in training")
    checkpoint_steps: int = _setting(200, "optimiser steps between checkpoints within an epoch")
    device: str = _setting("auto", "cpu, cuda, cuda:1; auto: the GPU if there is one")


@dataclass
class Config:
    """Everything that decides a run's weights, and where its data is."""

    criterion: str = _setting("ctc", "which wildcards there are, and their schedule: see above")
    seed: int = _setting(0, "of weights, batches, masks and dropout")
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    rates: RatesConfig = field(default_factory=RatesConfig)
    data: DataConfig = field(default_factory=DataConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    spec_augment: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)
    label_smoothing: LabelSmoothingConfig = field(default_factory=LabelSmoothingConfig)
    cr_ctc: CRCTCConfig = field(default_factory=CRCTCConfig)
    inter_ctc: InterCTCConfig = field(default_factory=InterCTCConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
