"""The transcripts of a manifest with all their writings: alternatives, variants, and several annotators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.scoring.hypotheses import read_references
from wildctc.text.alternatives import Writings
from wildctc.text.normalisation import Normalizer
from wildctc.text.reader import Reader
from wildctc.text.variants import read_variants


def load_reader(normalizer: Normalizer, variants: str | Path | None = None, shares: bool = False) -> Reader:
    """Make a reader of transcripts.

    Args:
        normalizer: How transcripts, and the variants, are normalised.
        variants: A file of variants; None for none.
        shares: Whether words of several transcripts have the logarithm of their share as weight.

    Returns:
        The reader.

    Raises:
        WildCTCError: The file cannot be used.
    """
    read = None if variants is None else read_variants(variants).normalised(normalizer)
    return Reader(normalizer, read, shares)


def add_texts(utterances: Sequence[Utterance], path: str | Path) -> list[Utterance]:
    """Add further transcripts of the same utterances.

    Args:
        utterances: The utterances.
        path: A file with transcripts by id, in any format of `read_references`.

    Returns:
        The utterances. Those that the file has too have one more of the `texts`, or several.

    Raises:
        WildCTCError: The file cannot be read, or has none of the utterances.
    """
    further = read_references([path])
    if not any(u.id in further for u in utterances):
        example = f", such as {next(iter(further))!r}" if further else ""
        raise WildCTCError(f"{path}: it has none of the utterances, such as {utterances[0].id!r}; its ids{example}")
    name = Path(path).name.split(".")[0]
    return [_with_texts(u, further[u.id], name) if u.id in further else u for u in utterances]


def _with_texts(utterance: Utterance, further: Sequence[str], name: str) -> Utterance:
    annotators = utterance.annotators
    if annotators and len(further) == 1 and name not in annotators:
        return replace(utterance, texts=(*utterance.texts, *further), annotators=(*annotators, name))
    return replace(utterance, texts=(*(utterance.texts or (utterance.text,)), *further), annotators=())


def read_transcript(utterance: Utterance, reader: Reader) -> str | Writings:
    """Read the transcript of an utterance.

    Args:
        utterance: The utterance.
        reader: How transcripts are read.

    Returns:
        The normalised text, or its writings if there are several.

    Raises:
        WildCTCError: A transcript does not follow the grammar. The message names utterance and column.
    """
    try:
        return reader(utterance.text, utterance.texts)
    except WildCTCError as error:
        raise WildCTCError(f"utterance {utterance.id}: {error}") from None


def read_transcripts(utterances: Sequence[Utterance], reader: Reader) -> dict[str, str | Writings]:
    """Read the transcripts of utterances.

    Args:
        utterances: The utterances.
        reader: How transcripts are read.

    Returns:
        For each id the normalised text, or its writings if there are several.
    """
    return {u.id: read_transcript(u, reader) for u in utterances}
