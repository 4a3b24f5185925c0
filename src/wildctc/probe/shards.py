"""Probe shards one by one, into one probe file. A process has the utterances of one shard in memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wildctc.claims import agree_on, once, work_through
from wildctc.corpora.shards import Shards
from wildctc.corpora.utterance import Utterance
from wildctc.distributed import ALONE, Processes
from wildctc.errors import WildCTCError
from wildctc.files import as_bytes, make_folder, writing
from wildctc.json_lines import check_rows_writable, row_line
from wildctc.probe.doubt import score_words
from wildctc.probe.records import FORMAT, NotProbed, stream_probe
from wildctc.probe.runner import ProbeCounts, ProbeModel, probe_manifest
from wildctc.progress import progress

_DECIDING = {"weights": "model", "self_loop": "self-loop weight", "utterances": "corpus"}


def probe_shards(
    model: ProbeModel,
    shards: Shards,
    output: Path,
    settings: dict[str, Any],
    *,
    processes: Processes,
    max_bad: float = 0.01,
    change: Callable[[Utterance], Utterance],
    **how: Any,
) -> ProbeCounts:
    """Probe shards and write a probe file (see `read_probe`). A call that was stopped resumes.

    Until all is done, the rows are in a probe file for each shard, in OUTPUT.parts. The processes of torchrun, and
    other calls on any machines that share the folder, probe different shards.

    Args:
        model: The model.
        shards: The shards.
        output: The file to write.
        settings: The file's first row, as `probe_manifest` takes it.
        processes: The processes that torchrun started.
        max_bad: The share of utterances that may be skipped. More of them are an error, but the file is complete.
        change: Applied to each utterance before it is probed.
        how: What else `probe_manifest` takes.

    Returns:
        How many utterances were probed now, and how many were skipped.

    Raises:
        WildCTCError: The output is of other shards or another model, or too many utterances were skipped.
    """
    check_rows_writable(output)
    digest = hashlib.sha256("".join(shard.digest for shard in shards.shards).encode()).hexdigest()[:16]
    about = {"format": FORMAT, **settings, "count": shards.utterances, "utterances": digest}
    now = 0
    if not processes.tell(output.exists()):
        now = _probe(model, shards, output, about, settings, change, how)
    now = int(processes.sum([float(now)])[0])
    skipped = 0
    if processes.first:
        _check(output, about)
        score_words(output)  # of a file that an earlier version made
        skipped = sum(isinstance(entry, NotProbed) for entry in stream_probe(output)[1])
    skipped = processes.tell(skipped)
    if skipped > max_bad * shards.utterances:
        raise WildCTCError(
            f"{skipped:,} of {shards.utterances:,} utterances cannot be probed, more than the limit of {max_bad:.2%}; "
            f"{output} says why. Repair them, or allow more with --max-bad"
        )
    return ProbeCounts(now, skipped)


def _probe(
    model: ProbeModel,
    shards: Shards,
    output: Path,
    about: dict[str, Any],
    settings: dict[str, Any],
    change: Callable[[Utterance], Utterance],
    how: dict[str, Any],
) -> int:
    """Probe the shards that nobody else probes, and wait for the others; returns how many utterances that were."""
    parts = make_folder(output.with_name(f"{output.name}.parts"))
    agree_on(parts / "settings.json", {name: about[name] for name in _DECIDING})
    paths = [parts / f"{shard.name}.jsonl" for shard in shards.shards]
    now = 0

    def probe(number: int) -> None:
        nonlocal now
        utterances = [change(utterance) for utterance in shards.read(number)]
        now += probe_manifest(model, utterances, paths[number], settings, processes=ALONE, max_bad=1.0, **how).now
        shards.done(number)

    def join() -> None:
        joined = parts / "joined.jsonl"
        _join(paths, joined, about)
        score_words(joined)  # by the words of all shards
        os.replace(joined, output)

    numbers = range(len(shards))
    with progress(total=len(numbers), desc="probing", unit="shard", leave=False) as bar:
        for _ in work_through(numbers, parts / "claims", lambda n: paths[n].exists() or output.exists(), probe):
            bar.update()
    once(parts / "joining", output.exists, join)
    with contextlib.suppress(OSError):  # another process may be doing the same
        shutil.rmtree(parts)
    return now


def _check(output: Path, about: dict[str, Any]) -> None:
    there = stream_probe(output)[0]
    for name, what in _DECIDING.items():
        if there.get(name) != about[name]:
            raise WildCTCError(f"{output} was made with another {what}; remove it, or write elsewhere with -o")


def _join(parts: list[Path], output: Path, about: dict[str, Any]) -> None:
    temporary = output.with_name(f".{output.name}.part")
    with writing(output):
        with open(temporary, "wb") as out:
            out.write(as_bytes(row_line({"probe": about})))
            for path in parts:
                with open(path, "rb") as file:
                    file.readline()  # its own first row
                    shutil.copyfileobj(file, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, output)
