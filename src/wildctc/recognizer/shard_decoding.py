"""Decode shards one after the other, into one hypothesis file. Only the utterances of a shard are in memory."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.claims import agree_on
from wildctc.corpora.preparation import Rejects
from wildctc.corpora.shards import Shards
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.distributed import ALONE, Processes
from wildctc.files import make_folder, writing
from wildctc.json_lines import check_rows_writable
from wildctc.recognizer.batch import decode_manifest
from wildctc.recognizer.model import Recognizer
from wildctc.scoring.error_rates import Errors, score
from wildctc.scoring.hypotheses import read_hyp_file


@dataclass
class Decodings:
    """What was decoded.

    Attributes:
        decoded: How many utterances.
        rejects: The utterances that were skipped.
        words: Word errors; of utterances with references.
        characters: Character errors.
        with_alternatives: How many references have alternatives.
        variant_chosen: Of how many references another writing than the first was nearest.
        scored: Whether all utterances have references.
    """

    rejects: Rejects
    decoded: int = 0
    words: Errors = field(default_factory=Errors)
    characters: Errors = field(default_factory=Errors)
    with_alternatives: int = 0
    variant_chosen: int = 0
    scored: bool = True

    @property
    def wer(self) -> float:
        """The word error rate, as a fraction."""
        return self.words.rate

    @property
    def cer(self) -> float:
        """The character error rate, as a fraction."""
        return self.characters.rate


def decode_shards(
    model: Recognizer, shards: Shards, output: Path, *, processes: Processes = ALONE, max_bad: float = 0.01, **how: Any
) -> Decodings:
    """Decode shards into a hypothesis file. A call that was stopped resumes.

    The rows are in the order of the shards. Until all is done, they are in a file for each shard, in OUTPUT.parts.

    Args:
        model: The recogniser.
        shards: The shards.
        output: The file to write.
        processes: The processes that share the work.
        max_bad: The share of utterances that may be skipped: the limit of the rejects that are returned.
        how: What else `decode_manifest` takes.

    Returns:
        What was decoded. The caller checks whether too many utterances were skipped.

    Raises:
        WildCTCError: The parts were made in another way.
    """
    check_rows_writable(output)
    parts = make_folder(output.with_name(f"{output.name}.parts"))
    if processes.first:
        agree_on(parts / "settings.json", _settings(model, shards, how))
    found = Decodings(Rejects(max_bad))
    for number, shard in enumerate(shards.shards):
        path = parts / f"{shard.name}.jsonl"
        if not processes.tell(path.exists()):
            decode_manifest(model, shards.read(number), path, processes=processes, max_bad=1.0, **how)
            shards.done(number)
        if processes.first:
            _count(found, path)
    if processes.first:
        _join([parts / f"{shard.name}.jsonl" for shard in shards.shards], output)
        shutil.rmtree(parts)
    processes.barrier()
    return found


def _settings(model: Recognizer, shards: Shards, how: dict[str, Any]) -> dict[str, Any]:
    """What the rows depend on."""
    sure, rescorer, reader = model.calibration, how.get("rescorer"), how.get("reader")
    variants = repr(reader.variants) if reader is not None and reader.variants is not None else ""
    return {
        "weights": model.fingerprint(),
        "shards": hashlib.sha256("".join(shard.digest for shard in shards.shards).encode()).hexdigest()[:16],
        "beam": how.get("beam"),
        "nbest": how.get("nbest"),
        "rescoring": rescorer.settings() if rescorer else None,
        "confidence": [sure.bias, *sure.weights] if sure else None,
        "variants": hashlib.sha256(variants.encode("utf-8", "backslashreplace")).hexdigest()[:16],
    }


def _count(found: Decodings, path: Path) -> None:
    decoded, reasons = read_hyp_file(path)
    found.decoded += len(decoded)
    for id, reason in reasons.items():
        found.rejects.add(UtteranceError(Utterance(id, path), reason))
    found.scored = found.scored and all(item.references for item in decoded)
    if found.scored and decoded:
        of_shard = score(decoded)
        found.words += of_shard.words
        found.characters += of_shard.characters
        found.with_alternatives += of_shard.with_alternatives
        found.variant_chosen += of_shard.variant_chosen


def _join(parts: list[Path], output: Path) -> None:
    temporary = output.with_name(f".{output.name}.part")
    with writing(output):
        with open(temporary, "wb") as out:
            for path in parts:
                with open(path, "rb") as file:
                    shutil.copyfileobj(file, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, output)
