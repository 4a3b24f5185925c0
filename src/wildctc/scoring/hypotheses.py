"""Files of hypotheses and references."""

import logging
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.json_lines import read_lines, read_rows
from wildctc.terminal import name_some
from wildctc.text.alternatives import has_grammar, parse_text

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoded:
    """A row of hyp.jsonl.

    Attributes:
        id: The utterance.
        text: What was recognised.
        references: What should have been: no text, one or several. A text may have alternatives in braces.
        score: The natural-log probability of the text, or its score with a language model; None: not known.
        nbest: The best texts with their scores, if several were asked for.
        confidence: The probability that it is right for each word of the text; None: not known.
    """

    id: str
    text: str
    references: tuple[str, ...] = ()
    score: float | None = None
    nbest: tuple[tuple[str, float], ...] = ()
    confidence: tuple[float, ...] | None = None


def hyp_row(item: Decoded) -> dict[str, Any]:
    """Give a hypothesis as its row of hyp.jsonl.

    Args:
        item: The hypothesis.

    Returns:
        The row: id, text, reference (None, a text, or a list of texts), score, and nbest if there are several.
    """
    reference = item.references[0] if len(item.references) == 1 else list(item.references) or None
    row: dict[str, Any] = {"id": item.id, "text": item.text, "reference": reference, "score": item.score}
    row |= {"confidence": list(item.confidence)} if item.confidence is not None else {}
    return row | {"nbest": [{"text": t, "score": s} for t, s in item.nbest]} if item.nbest else row


def read_hyps(path: str | Path) -> list[Decoded]:
    """Read the hypotheses in hyp.jsonl; utterances that could not be decoded are skipped with a warning.

    Args:
        path: The file, JSON lines or a table. Keys other than id, text, reference and score are ignored; reference and
            score may be missing. NeMo's manifests with `pred_text` are read too.
            The row of an utterance that could not be decoded has `left_out`, the reason, instead of a text.

    Returns:
        The hypotheses, in the file's order.

    Raises:
        WildCTCError: A line is not such a row, or there are no hypotheses.
    """
    decoded, left_out = read_hyp_file(path)
    if left_out:
        _log.warning("%s: not decoded, and not counted: %s", path, name_some(list(left_out)))
    if not decoded:
        raise WildCTCError(f"{path}: no utterances in it")
    return decoded


def read_hyp_file(path: str | Path) -> tuple[list[Decoded], dict[str, str]]:
    """Read hyp.jsonl, with the utterances that could not be decoded.

    Args:
        path: The file, as in `read_hyps`.

    Returns:
        The hypotheses, and for each other utterance of the manifest the reason why it has none (id → reason).

    Raises:
        WildCTCError: A line is not such a row.
    """
    decoded: list[Decoded] = []
    left_out: dict[str, str] = {}
    seen: set[str] = set()
    for number, fields in read_rows(path):
        where = f"{path}:{number}"
        fields = _from_nemo(fields) if "pred_text" in fields else fields
        id = _new_id(fields.get("id"), seen, where)
        seen.add(id)
        if "left_out" in fields:
            left_out[id] = str(fields["left_out"])
            continue
        text, score = fields.get("text"), fields.get("score")
        if not isinstance(text, str):
            raise WildCTCError(f'{where}: utterance {id} has no "text" (a string)')
        if not (score is None or (isinstance(score, int | float) and not isinstance(score, bool))):
            raise WildCTCError(f'{where}: "score" of utterance {id} is not a number')
        reference = fields.get("reference")
        decoded.append(Decoded(id, text, () if reference is None else _texts(reference, id, where), score))
    return decoded, left_out


def _from_nemo(row: dict[str, Any]) -> dict[str, Any]:
    """A row of NeMo's transcribe_speech.py: `text` is the reference, and the audio names the utterance."""
    id = row.get("id") or Path(str(row.get("audio_filepath", ""))).stem
    return {"id": id, "text": row["pred_text"], "reference": row.get("text")}


def read_references(paths: Iterable[str | Path]) -> dict[str, tuple[str, ...]]:
    """Read references from one or more files.

    Args:
        paths: The files. Their names decide the format. `.jsonl`, `.jsonl.gz`: objects with "id" and "reference" or
            "text" (a string or a list of alternatives), or lhotse cuts. `.tsv`: id and text in the first two columns,
            or in those that a header names. Anything else is a Kaldi text file: the id, a space, the text.

    Returns:
        Texts by utterance id; if several files have an utterance, the texts of all of them.

    Raises:
        WildCTCError: A line cannot be read, or a file has an utterance twice.
    """
    references: dict[str, tuple[str, ...]] = {}
    for path in paths:
        seen: dict[str, tuple[str, ...]] = {}
        name = Path(path).name.removesuffix(".gz")
        read = _read_jsonl if name.endswith(".jsonl") else _read_tsv if name.endswith(".tsv") else _read_kaldi
        for number, id, texts in read(path):
            where = f"{path}:{number}"
            seen[_new_id(id, seen, where)] = _texts(texts, id, where)
        for id, alternatives in seen.items():
            references[id] = references.get(id, ()) + alternatives
    return references


def _read_jsonl(path: str | Path) -> Iterator[tuple[int, Any, Any]]:
    """Name utterances as `load_manifest` does: after their file if they have no id."""
    for number, fields in read_rows(path):
        audio, said = fields.get("audio_filepath") or fields.get("audio"), fields.get("supervisions")
        if "reference" in fields:
            yield number, fields.get("id"), fields["reference"]
        elif said is not None and len(said) > 1:
            yield from ((number, s.get("id"), s.get("text") or "") for s in said)
        elif said is not None:
            yield number, fields.get("id"), "".join(s.get("text") or "" for s in said)
        elif fields.get("id") is None and isinstance(audio, str):
            yield number, Path(audio).stem, fields.get("text")
        else:
            yield number, fields.get("id"), fields.get("text")


def _read_tsv(path: str | Path) -> Iterator[tuple[int, Any, Any]]:
    id_column, text_column = 0, 1
    for number, line in read_lines(path):
        cells = line.split("\t")
        if number == 1 and {"id", "text"} <= set(cells):
            id_column, text_column = cells.index("id"), cells.index("text")
        elif len(cells) <= max(id_column, text_column):
            raise WildCTCError(f"{path}:{number}: expected the utterance id, a tab and the text")
        else:
            yield number, cells[id_column].strip(), cells[text_column]


def _read_kaldi(path: str | Path) -> Iterator[tuple[int, Any, Any]]:
    for number, line in read_lines(path):
        id, _, text = line.strip().replace("\t", " ").partition(" ")
        yield number, id, text


def _new_id(id: Any, seen: Container[str], where: str) -> str:
    if not isinstance(id, str) or not id:
        raise WildCTCError(f'{where}: no utterance "id" (a string)')
    if id in seen:
        raise WildCTCError(f"{where}: utterance {id} occurs a second time")
    return id


def _texts(value: Any, id: str, where: str) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise WildCTCError(f"{where}: the reference of utterance {id} is neither a text nor a list of texts")
    for text in filter(has_grammar, texts):
        try:
            parse_text(text)
        except WildCTCError as error:
            raise WildCTCError(f"{where}: the reference of utterance {id}, {error}") from None
    return texts
