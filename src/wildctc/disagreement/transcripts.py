"""Read references, and what several annotators wrote for the same utterances.

An empty transcript is a transcript. What cannot be right (an id twice, an utterance that is not in the reference) is an
error. What may be intended (a reference that no annotator or only one transcribed) is skipped and reported.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.json_lines import read_lines, read_rows
from wildctc.scoring.hypotheses import read_references
from wildctc.terminal import name_some
from wildctc.text.normalisation import Normalizer

_COLUMNS = ("utterance", "text", "annotator")
_IGNORED = "-"  # a column that is not needed


@dataclass
class Annotated:
    """A reference and its transcripts, all normalised.

    Attributes:
        id: The utterance's id.
        reference: The reference.
        language: The language, if the manifest has it.
        split: The split, if the manifest has it.
        transcripts: Annotator → transcript.
    """

    id: str
    reference: str
    language: str | None = None
    split: str | None = None
    transcripts: dict[str, str] = field(default_factory=dict)


def read_annotated(
    reference: str | Path,
    validators: Sequence[str | Path],
    normalizer: Normalizer,
    *,
    columns: Sequence[str] | None = None,
    header: bool = False,
) -> tuple[list[Annotated], dict[str, str]]:
    """Read the utterances that two or more annotators transcribed.

    Args:
        reference: A manifest (its `language` and `split` are kept), a Kaldi text file or a TSV file.
        validators: Files of transcripts. `.jsonl` has `id`, and either `transcripts` (a list, null for a missing one)
            or `text` and optionally `annotator`. `.tsv` has the columns that `columns` names, quoted if necessary. Any
            other file is a Kaldi text file. A file that does not name annotators is one annotator's.
        normalizer: Normalises all texts.
        columns: The columns of TSV files, in their order; None guesses them.
        header: Whether TSV files have a header line.

    Returns:
        The utterances, and for each skipped utterance the reason.

    Raises:
        WildCTCError: An id or an annotator occurs twice, an utterance is not in the reference, or there are fewer than
            two annotators.
    """
    utterances = {u.id: u for u in _read_reference(reference, normalizer)}
    annotators = set()
    for path in validators:
        rows = list(_read_validators(Path(path), columns, header))
        if not rows:
            raise WildCTCError(f"{path}: no transcripts in it; correct the file, or do not give it")
        for where, id, annotator, text in rows:
            if id not in utterances:
                raise WildCTCError(f"{where}: utterance {id!r} is not in the reference ({reference}); correct its id")
            if annotator in utterances[id].transcripts:
                raise WildCTCError(f"{where}: annotator {annotator} has transcribed utterance {id} before; keep one")
            utterances[id].transcripts[annotator] = normalizer(text)
            annotators.add(annotator)
    if len(annotators) < 2:
        one = f"only one annotator ({annotators.pop()})" if annotators else "no transcripts"
        raise WildCTCError(f"{one} in the validators' files: it takes two to disagree; give more --validators")
    return _usable(list(utterances.values()))


def _usable(utterances: Sequence[Annotated]) -> tuple[list[Annotated], dict[str, str]]:
    counted, left_out = [], {}
    for utterance in utterances:
        if len(utterance.transcripts) >= 2:
            counted.append(utterance)
        else:
            left_out[utterance.id] = "only one transcript" if utterance.transcripts else "no transcript"
    if not counted:
        raise WildCTCError(
            f"no utterance has two transcripts, and it takes two to disagree: {name_some(list(left_out))}"
        )
    return counted, left_out


# ----------------------------------------------------------------------------------------------------------- references


def _read_reference(path: str | Path, normalizer: Normalizer) -> Iterator[Annotated]:
    if not _name(path).endswith(".jsonl"):
        for id, texts in read_references([path]).items():
            yield Annotated(id, normalizer(texts[0]))
        return
    seen = set()
    for line, row in read_rows(path):
        for utterance in _reference_row(row, f"{path}:{line}"):
            if utterance.id in seen:
                raise WildCTCError(f"{path}:{line}: utterance {utterance.id} occurs twice; keep one reference of it")
            seen.add(utterance.id)
            utterance.reference = normalizer(utterance.reference)
            yield utterance


def _reference_row(row: dict[str, Any], where: str) -> Iterator[Annotated]:
    """A plain row, or a lhotse cut with one supervision or several."""
    split = row.get("split") or (row.get("custom") or {}).get("split")
    said = row.get("supervisions")
    rows = [row] if said is None else [s | ({"id": row.get("id")} if len(said) == 1 else {}) for s in said]
    for fields in rows:
        audio = fields.get("audio_filepath") or fields.get("audio")
        id = fields.get("id") or (Path(audio).stem if isinstance(audio, str) else None)
        if id is None or not isinstance(fields.get("text"), str):
            raise WildCTCError(f'{where}: expected an "id" and a "text" (a string)')
        yield Annotated(str(id), fields["text"], fields.get("language"), split)


# ----------------------------------------------------------------------------------------------------------- validators

_Row = tuple[str, str, str, str]  # file and line, utterance, annotator, text


def _read_validators(path: Path, columns: Sequence[str] | None, header: bool) -> Iterator[_Row]:
    name = _name(path)
    if name.endswith(".jsonl"):
        return _read_jsonl(path)
    if name.endswith(".tsv"):
        return _read_table(path, columns, header)
    return _read_kaldi(path)


def _name(path: str | Path) -> str:
    return Path(path).name.removesuffix(".gz")


def _read_jsonl(path: Path) -> Iterator[_Row]:
    for line, row in read_rows(path):
        where, id = f"{path}:{line}", row.get("id")
        texts = row.get("transcripts", [row.get("text")])
        if id is None or not isinstance(texts, list) or not all(t is None or isinstance(t, str) for t in texts):
            raise WildCTCError(f'{where}: expected an "id", and a "text" or "transcripts" (a list of texts)')
        for number, text in enumerate(texts, start=1):
            annotator = f"{path}, transcript {number}" if "transcripts" in row else str(row.get("annotator") or path)
            if text is not None:
                yield where, str(id), annotator, text


def _read_kaldi(path: Path) -> Iterator[_Row]:
    for line, content in read_lines(path):
        id, _, text = content.strip().replace("\t", " ").partition(" ")
        yield f"{path}:{line}", id, str(path), text


def _read_table(path: Path, columns: Sequence[str] | None, header: bool) -> Iterator[_Row]:
    """Read a table with cells quoted as in CSV: a transcript that was typed with a line break has two lines."""
    line = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
            text = raw.read().decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", strict=True)
        for cells in reader:
            line, where = reader.line_num, f"{path}:{reader.line_num}"
            if header:
                header = False
            elif cells:
                columns = columns or _guess(cells, where)
                if len(cells) != len(columns):
                    raise WildCTCError(f"{where}: {len(cells)} columns where --columns names {len(columns)}")
                row = dict(zip(columns, cells, strict=True))
                yield where, row["utterance"].strip(), row.get("annotator", str(path)).strip(), row["text"]
    except (OSError, EOFError) as error:
        raise WildCTCError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError as error:
        raise WildCTCError(f"cannot read {path}: not UTF-8 at byte {error.start}") from None
    except csv.Error as error:
        raise WildCTCError(
            f"{path}:{line + 1}: {error}; a cell that begins with a quote must be quoted whole"
        ) from None


def _guess(cells: Sequence[str], where: str) -> Sequence[str]:
    if len(cells) not in (2, 3):
        raise WildCTCError(
            f"{where}: {len(cells)} columns: name them in their order, as in --columns {','.join(_COLUMNS)}"
        )
    return _COLUMNS[: len(cells)]


def parse_columns(value: str) -> list[str]:
    """Parse the value of `--columns`.

    Args:
        value: Names separated by commas; "-" is a column that is not needed.

    Returns:
        The names, in their order.

    Raises:
        WildCTCError: A name is unknown, missing or repeated.

    >>> parse_columns("annotator,-,utterance,text")
    ['annotator', '-', 'utterance', 'text']
    """
    columns = value.split(",")
    named = [column for column in columns if column != _IGNORED]
    if unknown := [column for column in named if column not in _COLUMNS]:
        raise WildCTCError(
            f"--columns: unknown {unknown[0]!r}; known: {', '.join(_COLUMNS)}, and - for a column to ignore"
        )
    if len(set(named)) < len(named) or not {"utterance", "text"} <= set(named):
        raise WildCTCError(f"--columns {value}: utterance and text are needed, each once")
    return columns
