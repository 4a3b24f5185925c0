"""Apply the decisions that people made on the report's page to a manifest.

Only a "fix" changes the manifest, and only if its transcript is still the one that was judged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from wildctc.audit.decisions import Decision
from wildctc.corpora.manifest import read_utterances
from wildctc.corpora.rewriting import add_fields, move_audio, set_text, write_manifest
from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.json_lines import check_rows_writable
from wildctc.text.matching import find_case, find_normalizer
from wildctc.text.normalisation import Normalizer


@dataclass
class AppliedDecisions:
    """The result of applying decisions to a manifest. `print` shows a summary.

    Attributes:
        output: The new manifest.
        fixed: Fixed utterances: id, transcript before, transcript after.
        already: Ids of utterances that already had their fix.
        refused: Decisions about another transcript than the manifest's: id, the manifest's transcript, the judged one.
        unknown: Ids that are not in the manifest.
        other: How many utterances were accepted ("accept") and skipped ("skip").
    """

    output: Path
    fixed: list[tuple[str, str, str]] = field(default_factory=list)
    already: list[str] = field(default_factory=list)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [f"{id}: {_difference(before, after)}" for id, before, after in self.fixed]
        counts = [f"{len(self.fixed):,} fixed", f"{self.other['accept']:,} accepted", f"{self.other['skip']:,} skipped"]
        counts += [f"{len(self.already):,} already had their fix"] * bool(self.already)
        counts += [f"{len(self.refused):,} refused"] * bool(self.refused)
        counts += [f"{len(self.unknown):,} for other utterances"] * bool(self.unknown)
        return "\n".join([*lines, f"{self.output}: {', '.join(counts)}"])


def apply_decisions(manifest: str | Path, decisions: dict[str, Decision], output: str | Path) -> AppliedDecisions:
    """Write a manifest with the fixed transcripts. All other fields stay as they are.

    A fixed transcript gets the field `text_before`, and, as far as they are known, `fixed_by`, `fixed_at`,
    `fix_reason`
    and `fix_comment`. Only the weights of the words of a fixed transcript are removed: they belong to the old words.

    A decision is refused if the manifest's transcript is no longer the one that was judged; the others are applied.
    Words that a fix does not change keep their capitals and punctuation. If either the page or the manifest is in
    capitals only, fixes are converted to the manifest's case.

    Args:
        manifest: The manifest that was probed.
        decisions: The decisions by utterance id.
        output: The new manifest (.jsonl or .jsonl.gz).

    Returns:
        What was done with each decision.
    """
    manifest, output = Path(manifest), Path(output)
    check_rows_writable(output, source=manifest)
    rows = list(read_utterances(manifest))
    decisions = _in_the_manifests_case([u for _, utterances in rows for u in utterances], decisions)
    result, seen = AppliedDecisions(output), set[str]()
    for row, utterances in rows:
        for n, utterance in enumerate(utterances):
            seen.add(utterance.id)
            if utterance.id in decisions:
                text = _decide(utterance, decisions[utterance.id], result)
                if text != utterance.text:
                    set_text(row, n, text)
                    add_fields(row, n, _provenance(utterance, decisions[utterance.id]))
        move_audio(row, manifest, output)
    result.unknown = [id for id in decisions if id not in seen]
    if len(result.unknown) == len(decisions):
        raise WildCTCError(f"no decision is about an utterance of {manifest}; the first: {result.unknown[0]!r}")
    write_manifest(output, [row for row, _ in rows])
    return result


def _provenance(utterance: Utterance, decision: Decision) -> dict[str, str]:
    """What the new manifest says about a fix. The transcript before all fixes is kept if there are several."""
    first = dict(utterance.fields).get("text_before")
    said = {
        "text_before": first if isinstance(first, str) else utterance.text,
        "fixed_by": decision.reviewer,
        "fixed_at": decision.at,
        "fix_reason": decision.reason,
        "fix_comment": decision.comment,
    }
    return {name: value for name, value in said.items() if value or name == "text_before"}


def _in_the_manifests_case(utterances: list[Utterance], decisions: dict[str, Decision]) -> dict[str, Decision]:
    """Convert decisions to the case of the manifest, if either the page or the manifest is in capitals only."""
    judged = [d.text for d in decisions.values()]
    change = find_case(judged, [u.text for u in utterances if u.id in decisions], [u.text for u in utterances])
    if change is None:
        return decisions
    return {id: replace(d, text=change(d.text), fixed=change(d.fixed)) for id, d in decisions.items()}


def _decide(utterance: Utterance, decision: Decision, result: AppliedDecisions) -> str:
    """Apply a decision to an utterance and count it in `result`; returns the transcript after it."""
    # The page shows transcripts as the model's units normalise them. Those of the manifest may be written differently.
    normalizer = find_normalizer(utterance.text, decision.text)
    text = utterance.text
    if normalizer and decision.decision == "fix":
        text = _amend(utterance.text, decision.text, decision.fixed, normalizer)
    if text != utterance.text:
        result.fixed.append((utterance.id, utterance.text, text))
    elif normalizer and decision.decision != "fix":
        result.other[decision.decision] += 1
    elif normalizer or (decision.fixed and find_normalizer(utterance.text, decision.fixed)):
        result.already.append(utterance.id)
    else:
        result.refused.append((utterance.id, utterance.text, decision.text))
    return text


def _amend(written: str, judged: str, fixed: str, normalizer: Normalizer) -> str:
    """Change in `written` the words that differ between `judged`, which is its normalised form, and `fixed`.

    >>> _amend("Selamat pagi, Ann!", "selamat pagi ann", "selamat petang ann", Normalizer(True, True))
    'Selamat petang Ann!'
    """
    words, before, after = written.split(), judged.split(), fixed.split()
    if [normalizer(word) for word in words] != [normalizer(word) for word in before]:
        return " ".join(after)  # the words do not correspond one to one: "well-known" is two
    kept: list[str] = []
    for tag, i, j, k, l in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        kept += words[i:j] if tag == "equal" else after[k:l]
    return " ".join(kept)


def _difference(before: str, after: str) -> str:
    """Describe the words that changed.

    >>> _difference("selamat pagi ann", "selamat petang ann dan ben")
    'pagi → petang; + dan ben'
    """
    old, new = before.split(), after.split()
    parts = []
    for tag, i, j, k, l in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        removed, added = " ".join(old[i:j]), " ".join(new[k:l])
        if tag != "equal":
            parts.append(f"{removed} → {added}" if removed and added else f"− {removed}" if removed else f"+ {added}")
    return "; ".join(parts) or "spaces only"
