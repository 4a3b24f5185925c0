"""What a person decided on the report's page, and the manifest with the fixes in it.

A decision is a line of JSON: {"id", "decision": "accept" | "fix" | "skip", "text": the transcript that was judged,
"fixed": what it should be}. Only "fix" changes anything, and only a transcript that is still the one that was judged.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from wildctc.corpora.manifest import Utterance, read_rows, read_utterances
from wildctc.errors import WildCTCError
from wildctc.files import as_bytes, check_writable, write_atomically
from wildctc.text import Normalizer

DECISIONS = ("accept", "fix", "skip")
# The transcript on the page is normalised as the recogniser's units are; a manifest's need not be.
_NORMALIZERS = [Normalizer(lower, strip) for lower in (False, True) for strip in (False, True)]


@dataclass(frozen=True)
class Decision:
    """One decision; `fixed` is the new transcript of a "fix", else empty."""

    id: str
    decision: str
    text: str
    fixed: str = ""


@dataclass
class Applied:
    """What became of the decisions: `print` it."""

    output: Path
    fixed: list[tuple[str, str, str]] = field(default_factory=list)  # id, the transcript before and after
    already: list[str] = field(default_factory=list)
    refused: list[tuple[str, str, str]] = field(default_factory=list)  # id, the manifest's transcript, the judged one
    unknown: list[str] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)  # accept, skip

    def __str__(self) -> str:
        lines = [f"{id}: {difference(before, after)}" for id, before, after in self.fixed]
        counts = [f"{len(self.fixed):,} fixed", f"{self.other['accept']:,} accepted", f"{self.other['skip']:,} skipped"]
        counts += [f"{len(self.already):,} had their fix already"] * bool(self.already)
        counts += [f"{len(self.refused):,} refused"] * bool(self.refused)
        counts += [f"{len(self.unknown):,} for other utterances"] * bool(self.unknown)
        return "\n".join([*lines, f"{self.output}: {', '.join(counts)}"])


def read_decisions(path: str | Path) -> dict[str, Decision]:
    """The decisions of a file by utterance; of several for one the last counts."""
    found: dict[str, Decision] = {}
    for line, row in read_rows(path):
        try:
            decision = Decision(row["id"], row["decision"], row["text"], row.get("fixed") or "")
        except KeyError as error:
            message = f"{path}:{line}: no field {error}; is it a file of decisions, exported from a report's page?"
            raise WildCTCError(message) from None
        if not all(isinstance(value, str) for value in vars(decision).values()):
            raise WildCTCError(f"{path}:{line}: a field that is not a string")
        if decision.decision not in DECISIONS:
            raise WildCTCError(f"{path}:{line}: decision {decision.decision!r} is none of {', '.join(DECISIONS)}")
        if decision.decision == "fix" and not decision.fixed.split():
            raise WildCTCError(f"{path}:{line}: the fix of {decision.id!r} is empty; give the words that were said")
        found[decision.id] = decision
    if not found:
        raise WildCTCError(f"{path}: no decisions in it")
    return found


def apply_decisions(manifest: str | Path, decisions: dict[str, Decision], output: str | Path) -> Applied:
    """Write the manifest with its fixes to `output` (.jsonl or .jsonl.gz); every other field stays as it is.

    A fix is refused if the manifest's transcript is no longer the one that was judged; all others are applied. Words
    that a fix does not touch keep their capitals and punctuation, should the manifest have any. Where only the probe or
    only the manifest is in capitals throughout, fixes are brought into the manifest's case.
    """
    manifest, output = Path(manifest), Path(output)
    check_writable(output, source=manifest)
    rows = list(read_utterances(manifest))
    decisions = _in_the_case_of([u for _, utterances in rows for u in utterances], decisions)
    result, seen, lines = Applied(output), set[str](), []
    for row, utterances in rows:
        for n, utterance in enumerate(utterances):
            seen.add(utterance.id)
            if utterance.id in decisions:
                text = _decide(utterance, decisions[utterance.id], result)
                if text != utterance.text:
                    _set_text(row, n, text)
        _move_audio(row, manifest, output)
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    result.unknown = [id for id in decisions if id not in seen]
    if len(result.unknown) == len(decisions):
        raise WildCTCError(f"no decision is about an utterance of {manifest}; the first: {result.unknown[0]!r}")
    content = as_bytes("".join(lines))
    write_atomically(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)
    return result


def _in_the_case_of(utterances: list[Utterance], decisions: dict[str, Decision]) -> dict[str, Decision]:
    """The decisions with their texts in the case of the manifest's transcripts, if one of both is all in capitals.

    Many checkpoints of Hugging Face write capitals only, and so does LibriSpeech.
    """
    judged = " ".join(d.text for d in decisions.values())
    if judged.isupper() and not " ".join(u.text for u in utterances if u.id in decisions).isupper():
        change = str.lower
    elif " ".join(u.text for u in utterances).isupper() and not judged.isupper():
        change = str.upper
    else:
        return decisions
    return {id: replace(d, text=change(d.text), fixed=change(d.fixed)) for id, d in decisions.items()}


def _decide(utterance: Utterance, decision: Decision, result: Applied) -> str:
    """The utterance's transcript after the decision, which is noted in `result`."""
    normalizer = next((n for n in _NORMALIZERS if n(utterance.text) == n(decision.text)), None)
    text = utterance.text
    if normalizer and decision.decision == "fix":
        text = amend(utterance.text, decision.text, decision.fixed, normalizer)
    if text != utterance.text:
        result.fixed.append((utterance.id, utterance.text, text))
    elif normalizer and decision.decision != "fix":
        result.other[decision.decision] += 1
    elif normalizer or any(n(utterance.text) == n(decision.fixed) for n in _NORMALIZERS if decision.fixed):
        result.already.append(utterance.id)
    else:
        result.refused.append((utterance.id, utterance.text, decision.text))
    return text


def amend(written: str, judged: str, fixed: str, normalizer: Normalizer) -> str:
    """`written`, of which `judged` is the normalised form, with the words changed that `fixed` changes.

    >>> amend("Selamat pagi, Ann!", "selamat pagi ann", "selamat petang ann", Normalizer(True, True))
    'Selamat petang Ann!'
    """
    words, before, after = written.split(), judged.split(), fixed.split()
    if [normalizer(word) for word in words] != [normalizer(word) for word in before]:
        return " ".join(after)  # words do not stand one for one: "well-known" is two
    kept: list[str] = []
    for tag, i, j, k, l in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        kept += words[i:j] if tag == "equal" else after[k:l]
    return " ".join(kept)


def difference(before: str, after: str) -> str:
    """What changed from one transcript to another, by words.

    >>> difference("selamat pagi ann", "selamat petang ann dan ben")
    'pagi → petang; + dan ben'
    """
    old, new = before.split(), after.split()
    parts = []
    for tag, i, j, k, l in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = " ".join(old[i:j]), " ".join(new[k:l])
        if tag != "equal":
            parts.append(f"{gone} → {come}" if gone and come else f"− {gone}" if gone else f"+ {come}")
    return "; ".join(parts) or "spaces only"


def _set_text(row: dict[str, Any], number: int, text: str) -> None:
    """Put a transcript into a row: a plain one, or the cut's supervision of that number."""
    if "recording" not in row and "supervisions" not in row:
        row["text"] = text
        return
    if not row.get("supervisions"):
        stretch = {"start": 0.0, "duration": row["duration"], "channel": row.get("channel", 0)}
        row["supervisions"] = [{"id": row["id"], "recording_id": row["recording"]["id"], **stretch}]
    row["supervisions"][number]["text"] = text


def _move_audio(row: dict[str, Any], manifest: Path, output: Path) -> None:
    """Name the audio relative to the new manifest, if it was relative to the old one."""
    before, after = manifest.parent.resolve(), output.parent.resolve()
    if row.get("recording"):  # as lhotse, relative to the working directory; else to the manifest
        sources = row["recording"]["sources"]
        places = [(source, "source") for source in sources if not Path(source["source"]).is_file()]
    else:
        places = [(row, "audio_filepath" if "audio_filepath" in row else "audio")]
    for place, name in places:
        if before != after and not Path(place[name]).is_absolute():
            place[name] = os.path.relpath(before / place[name], after)
