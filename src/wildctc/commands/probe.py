"""`wildctc probe`."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wildctc.commands.options import (
    Add,
    add_engine_options,
    add_hf_option,
    add_limit_option,
    add_manifest_options,
    add_text_options,
    add_transcript_options,
    add_trust_option,
    add_workers_option,
    load_model_or_checkpoint,
    normalizer,
    share_with_ray,
    transcript_reader,
    weight,
    with_further_texts,
)
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.corpora.utterance import Utterance
    from wildctc.text.normalisation import Normalizer


def register(add: Add) -> None:
    p = add("probe", run, "For each token and word of a manifest: how probable is it that it was not said?")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, a model folder, or with --hf a checkpoint")
    add_manifest_options(p)
    add_transcript_options(p)
    p.add_argument("-o", "--output", metavar="PROBE", required=True, help="the file to write, or to resume")
    add_hf_option(p)
    p.add_argument(
        "--self-loop",
        type=weight,
        default=0.0,
        metavar="WEIGHT",
        help="log-weight of unwritten speech in the gaps (default 0); none: no such arcs",
    )
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    add_workers_option(p)
    add_trust_option(p)
    add_text_options(p)
    add_limit_option(p)
    add_engine_options(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.shards import are_shards, load_utterances, open_shards
    from wildctc.distributed import process_group
    from wildctc.probe.runner import probe_manifest
    from wildctc.probe.shards import probe_shards

    if options.workers < 0:
        raise WildCTCError(f"--workers must be at least 0, got {options.workers}")
    of_shards = are_shards(options.manifest) and options.split is None and not options.also
    share_with_ray(options, of_shards, gpus=True)
    with process_group() as processes:
        model, settings = _model(options)
        if options.keep_invisible and not model.units.normalizer.keep_invisible:
            raise WildCTCError(
                "--keep-invisible: the model was trained without invisible characters, and its units remove them; "
                "leave the option out, or train a model with --data.keep_invisible true"
            )
        output, change = Path(options.output), _change(options)
        about = settings | {"manifest": options.manifest, "split": options.split, "self_loop": options.self_loop}
        how = {
            "processes": processes,
            "cache": options.cache,
            "workers": options.workers,
            "max_bad": options.max_bad,
            "reader": transcript_reader(options, model.units.normalizer),
        }
        if of_shards:
            shards = open_shards(options.manifest, options.audio_root)
            found = probe_shards(model, shards, output, about, change=change, **how)
            total = shards.utterances
        else:
            read = load_utterances(options.manifest, options.split, options.audio_root)
            utterances = [change(utterance) for utterance in with_further_texts(options, read)]
            found = probe_manifest(model, utterances, output, about, **how)
            total = len(utterances)
    if processes.first:
        done = "" if found.now else " (complete already; remove it to probe again)"
        skipped = f", {found.skipped:,} skipped" if found.skipped else ""
        count = total - found.skipped
        print(f"{output}: {count:,} utterance{'s' * (count != 1)}{skipped}{done}")


def _change(options: argparse.Namespace) -> Callable[[Utterance], Utterance]:
    """What --lower and --strip-punctuation do to a transcript."""
    if not (options.lower or options.strip_punctuation):
        return lambda utterance: utterance
    normalize = normalizer(options)
    return lambda utterance: _normalised(utterance, normalize)


def _normalised(utterance: Utterance, normalize: Normalizer) -> Utterance:
    from wildctc.text.alternatives import normalise_text

    texts = tuple(normalise_text(text, normalize) for text in utterance.texts)
    return replace(utterance, text=normalise_text(utterance.text, normalize), texts=texts)


def _model(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The model, and what a probe file says about it."""
    folder = Path(options.run_folder)
    model: Any = load_model_or_checkpoint(options)
    if options.hf:
        weights = model.fingerprint()
    else:
        from wildctc.recognizer.model import find_model

        if model.units.kind == "phones":
            raise WildCTCError(f"{folder} writes phones, and a probe needs units that spell: train with characters")
        with open(find_model(folder) / "model.safetensors", "rb") as file:
            weights = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    about = {"model": str(folder), "weights": weights, "units": model.units.kind, "frame_rate": model.frame_rate}
    characters = {char for token in model.units.tokens if not token.startswith("<") for char in token}
    about["characters"] = "".join(sorted(characters))  # what it can write: the audit's page warns of others
    return model, about | {"normalizer": model.units.normalizer.to_dict()}
