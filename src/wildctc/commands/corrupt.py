"""`wildctc corrupt`."""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wildctc.commands.options import Add, add_text_options, normalizer
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.corpora.utterance import Utterance
    from wildctc.corruption.corrupt import Corrupted


_NOT_KEPT = ("weights", "texts", "annotators")  # they belong to the words before


def register(add: Add) -> None:
    p = add("corrupt", run, "Put known errors into the transcripts of a manifest, and keep the truth beside them.")
    p.add_argument("manifest", metavar="MANIFEST", help="lhotse cuts or plain JSONL")
    p.add_argument("-o", "--output", metavar="OUT", required=True, help="the new manifest (.jsonl or .jsonl.gz)")
    p.add_argument("--split", help="of a manifest with several splits")
    p.add_argument("--characters", type=float, default=0.0, metavar="RATE", help="share of characters to hit")
    p.add_argument("--character-kinds", metavar="KINDS", help="default: substitution,insertion,deletion")
    p.add_argument("--words", type=float, default=0.0, metavar="RATE", help="share of words to hit")
    p.add_argument("--word-kinds", metavar="KINDS", help="default: substitution,insertion,deletion,join,split")
    p.add_argument("--variants", metavar="FILE", help="spelling variants: on each line two or more of one word")
    p.add_argument(
        "--variant-rate", type=float, metavar="RATE", help="share of the words in FILE to respell (default 0.5)"
    )
    p.add_argument("--seed", type=int, default=0, help="default 0")
    add_text_options(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.manifest import load_manifest, read_utterances
    from wildctc.corruption.corrupt import CHARACTER_KINDS, WORD_KINDS, corrupt, read_variants
    from wildctc.files import as_bytes, write_atomically
    from wildctc.json_lines import check_rows_writable
    from wildctc.text.alternatives import has_grammar

    if not (options.characters or options.words or options.variants):
        raise WildCTCError("nothing to corrupt: give --characters, --words or --variants")
    if options.variant_rate is not None and not options.variants:
        raise WildCTCError("--variant-rate needs --variants FILE")
    normalize, output = normalizer(options), Path(options.output)
    utterances = load_manifest(options.manifest, options.split)
    given = {u.id: row for row, found in read_utterances(options.manifest) for u in found}
    if any("truth" in row and "edits" in row for row in given.values()):
        raise WildCTCError(
            f"{options.manifest} has errors on purpose already, and their truth would be lost: "
            "corrupt the manifest that it was made from; all rates can be given at once"
        )
    if several := next((u.id for u in utterances if u.texts or has_grammar(u.text)), None):
        raise WildCTCError(
            f"{options.manifest}: {several} has alternatives; errors are put into transcripts of one writing only"
        )
    check_rows_writable(output, source=options.manifest)
    truths = [normalize(utterance.text) for utterance in utterances]
    corrupted = corrupt(
        truths,
        characters=options.characters,
        words=options.words,
        variants=read_variants(options.variants, normalize) if options.variants else None,
        variant_rate=0.5 if options.variant_rate is None else options.variant_rate,
        character_kinds=_kinds("--character-kinds", options.character_kinds, CHARACTER_KINDS),
        word_kinds=_kinds("--word-kinds", options.word_kinds, WORD_KINDS),
        seed=options.seed,
    )
    rows = [
        _further(given[u.id]) | _row(u, truth, new, output)
        for u, truth, new in zip(utterances, truths, corrupted, strict=True)
    ]
    content = as_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write_atomically(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)
    print(f"{output}: {_summary(truths, corrupted)}")


def _kinds(option: str, given: str | None, known: Sequence[str]) -> Sequence[str]:
    kinds = known if given is None else given.split(",")
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise WildCTCError(f"{option}: unknown kind {unknown[0]!r}; known: {', '.join(known)}")
    return kinds


def _further(row: dict[str, Any]) -> dict[str, Any]:
    """The other fields of a plain row, which are kept. The fields of a cut mean nothing outside a cut.

    Weights of words are not kept: they belong to the words before.
    """
    ours = {"audio_filepath", "offset", "supervisions", "recording", "weights"}
    return {} if "recording" in row else {field: value for field, value in row.items() if field not in ours}


def _row(utterance: Utterance, truth: str, new: Corrupted, output: Path) -> dict[str, Any]:
    """A plain row; the audio is named relative to the new manifest, so that both can move together."""
    audio = utterance.audio.parent.resolve() / utterance.audio.name
    row = asdict(utterance) | {"audio": os.path.relpath(audio, output.parent.resolve()), "text": new.text}
    row = {field: value for field, value in row.items() if value is not None and field not in _NOT_KEPT}
    return row | {"truth": truth, "edits": [asdict(edit) for edit in new.edits]}


def _summary(truths: Sequence[str], corrupted: Sequence[Corrupted]) -> str:
    from wildctc.corruption.corrupt import clusters

    kinds = Counter(edit.kind for new in corrupted for edit in new.edits)
    words = [word for truth in truths for word in truth.split()]
    characters = sum(len(clusters(word)) for word in words)
    listed = ", ".join(f"{n:,} {kind}{'s' * (n != 1)}" for kind, n in sorted(kinds.items()))
    hit = sum(bool(new.edits) for new in corrupted)
    return (
        f"{len(truths):,} utterances, {hit:,} of them changed; "
        f"{kinds.total():,} edits ({listed}) in {characters:,} characters of {len(words):,} words"
    )
