"""`wildctc decode`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import (
    Add,
    add_limit_option,
    add_manifest_options,
    add_rescoring_options,
    add_trust_option,
    add_variants_option,
    add_workers_option,
    load_model_or_last,
    rescorer,
    warn_about_references,
)
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.distributed import Processes
    from wildctc.recognizer.language_model import Rescorer
    from wildctc.recognizer.model import Recognizer
    from wildctc.recognizer.shard_decoding import Decodings
    from wildctc.scoring.error_rates import Score
    from wildctc.scoring.hypotheses import Decoded

_log = logging.getLogger(__name__)


def register(add: Add) -> None:
    p = add("decode", run, "Transcribe a manifest with a trained recogniser.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    add_manifest_options(p)
    p.add_argument(
        "-o",
        "--output",
        metavar="HYP",
        help="the file to write, or to resume (default: RUN/hyp/<manifest>.jsonl, where `compare RUN` looks)",
    )
    p.add_argument("--beam", type=int, default=10, help="prefixes kept (default 10); 1 is greedy")
    p.add_argument("--nbest", type=int, default=1, metavar="N", help="write the N best texts with their scores")
    add_rescoring_options(p)
    add_variants_option(p)
    p.add_argument("--also", metavar="FILE", help="further references of the utterances, by id")
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    add_workers_option(p)
    add_trust_option(p)
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.shards import are_shards, load_utterances
    from wildctc.distributed import process_group
    from wildctc.recognizer.batch import decode_manifest
    from wildctc.scoring.error_rates import score
    from wildctc.scoring.transcripts import add_texts, load_reader

    for name, value, least in (
        ("--beam", options.beam, 1),
        ("--nbest", options.nbest, 1),
        ("--workers", options.workers, 0),
    ):
        if value < least:
            raise WildCTCError(f"{name} must be at least {least}, got {value}")
    chooses = rescorer(options)
    with process_group() as processes:
        model, folder = load_model_or_last(options)
        chooses = chooses and chooses.written_by(model.units)
        if are_shards(options.manifest) and options.split is None and not options.also:
            _decode_shards(options, model, folder, chooses, processes)
            return
        utterances = load_utterances(options.manifest, options.split, options.audio_root)
        utterances = add_texts(utterances, options.also) if options.also else utterances
        name = options.split or Path(options.manifest).name.split(".")[0]
        output = Path(options.output) if options.output else Path(options.run_folder) / folder / f"{name}.jsonl"
        decoded, rejects = decode_manifest(
            model,
            utterances,
            output,
            beam=options.beam,
            rescorer=chooses,
            nbest=options.nbest,
            processes=processes,
            cache=options.cache,
            workers=options.workers,
            max_bad=options.max_bad,
            reader=load_reader(model.units.normalizer, options.variants),
        )
        if processes.first:
            found = score(decoded) if decoded and all(item.references for item in decoded) else None
            print(f"{output}: {_summary(len(decoded), len(rejects.errors), found)}", flush=True)
            if found is not None:
                _warn(decoded, found, model.units.missing, output)
        rejects.check(len(utterances))


def _decode_shards(
    options: argparse.Namespace, model: Recognizer, folder: str, chooses: Rescorer | None, processes: Processes
) -> None:
    from wildctc.corpora.shards import open_shards
    from wildctc.recognizer.shard_decoding import decode_shards
    from wildctc.scoring.transcripts import load_reader

    name = Path(options.manifest.rstrip("/")).name
    output = Path(options.output) if options.output else Path(options.run_folder) / folder / f"{name}.jsonl"
    found = decode_shards(
        model,
        open_shards(options.manifest, options.audio_root),
        output,
        beam=options.beam,
        rescorer=chooses,
        nbest=options.nbest,
        processes=processes,
        cache=options.cache,
        workers=options.workers,
        max_bad=options.max_bad,
        reader=load_reader(model.units.normalizer, options.variants),
    )
    if processes.first:
        skipped = len(found.rejects.errors)
        print(f"{output}: {_summary(found.decoded, skipped, found if found.scored else None)}", flush=True)
        found.rejects.check(found.decoded + skipped)


def _summary(decoded: int, skipped: int, found: Score | Decodings | None) -> str:
    parts = [f"{decoded:,} utterance{'s' * (decoded != 1)}"]
    if skipped:
        parts.append(f"{skipped:,} skipped")
    if found is not None:
        parts.append(f"WER {found.wer:.2%}, CER {found.cer:.2%}")
        if several := found.with_alternatives:
            parts.append(f"another writing than the first in {found.variant_chosen / several:.1%} of {several:,}")
    return ", ".join(parts)


def _warn(decoded: list[Decoded], found: Score, missing: Callable[[str], list[str]], output: Path) -> None:
    """Warn about reasons for a high error rate that can be seen in the texts."""
    from wildctc.scoring.mismatch import advise_scoring, find_outside, hopeless

    outside = find_outside((utterance.reference for utterance in found.utterances), missing)
    if outside.texts:
        option, found = advise_scoring(decoded)
        advice = f"`wildctc score {output} {option}` gives WER {found.wer:.2%}" if option else None
        warn_about_references(outside, len(decoded), "that the model cannot write", advice)
    if hopeless(found.words):
        _log.warning(
            "WER %.1f%%: the model recognises next to nothing of this speech, and wrote nothing for %s of %s utterances"
            "; is it trained (see its metrics.jsonl), and do audio, references and model have one language?",
            100 * found.wer, f"{sum(not item.text for item in decoded):,}", f"{len(decoded):,}",
        )  # fmt: skip
