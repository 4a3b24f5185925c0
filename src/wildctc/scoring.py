"""How many words and characters are wrong, and which ones?

Everything is counted per utterance and summed, so that a comparison can resample utterances. A character is a Unicode
code point of the normalised text and the space is one of them (as in the audit of disagreement); a word is what stands
between spaces.

An empty reference is legal: each word written for it is an insertion, and it adds nothing to the number of words
that the errors are divided by. Where no reference has any words at all, the errors are divided by one (as jiwer does):
0 if nothing was written, and otherwise the number of insertions.
"""

import json
import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .corpora.manifest import read_lines, read_rows
from .errors import MissingExtra, WildCTCError
from .files import make_folder, write_text
from .text import Normalizer

_log = logging.getLogger(__name__)
AS_WRITTEN = Normalizer()  # NFC and single spaces; case and punctuation count


# ------------------------------------------------------------------------------------------------------------- counting


@dataclass(frozen=True)
class Errors:
    """Edits that turn a reference into a hypothesis, and the reference's length (words or characters).

    >>> errors = Errors(substitutions=1, insertions=0, deletions=1, reference=8)
    >>> errors.total, errors.rate
    (2, 0.25)
    """

    substitutions: int = 0
    insertions: int = 0
    deletions: int = 0
    reference: int = 0

    @property
    def total(self) -> int:
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Edits per word or character of the reference; of an empty reference: see the top of this module."""
        return self.total / max(self.reference, 1)

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(
            self.substitutions + other.substitutions,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
            self.reference + other.reference,
        )

    def to_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "errors": self.total, **asdict(self)}


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[str, str | None, str | None]]:
    """A shortest edit of tokens (words, or the characters of a string): (kind, reference, hypothesis) for each column.

    The kind is "=", "S" (substitution), "I" (insertion: no reference) or "D" (deletion: no hypothesis).

    >>> align("urang ka datai".split(), "orang datai".split())
    [('S', 'urang', 'orang'), ('D', 'ka', None), ('=', 'datai', 'datai')]
    """
    kinds = {"equal": "=", "replace": "S", "insert": "I", "delete": "D"}
    columns: list[tuple[str, str | None, str | None]] = []
    for code in _levenshtein().opcodes(reference, hypothesis):
        left, right = reference[code.src_start : code.src_end], hypothesis[code.dest_start : code.dest_end]
        columns += [(kinds[code.tag], r, h) for r, h in zip_longest(left, right)]  # one side is empty, or both equal
    return columns


def wer(
    references: Sequence[str | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer = AS_WRITTEN
) -> Errors:
    """Word errors summed over utterances; where an utterance has several references, against the nearest.

    >>> wer(["a b c", ["d e", "d f"]], ["a x c", "d f"])
    Errors(substitutions=1, insertions=0, deletions=0, reference=5)
    """
    return _score_texts(references, hypotheses, normalizer).words


def cer(
    references: Sequence[str | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer = AS_WRITTEN
) -> Errors:
    """Character errors summed over utterances, against the same references as `wer`; the space is a character.

    >>> cer(["madah ka"], ["madahka"])
    Errors(substitutions=0, insertions=0, deletions=1, reference=8)
    """
    return _score_texts(references, hypotheses, normalizer).characters


def _score_texts(
    references: Sequence[str | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer
) -> "Score":
    several = [(r,) if isinstance(r, str) else tuple(r) for r in references]
    pairs = zip(several, hypotheses, strict=True)
    return Score(tuple(_score_one(str(i), hyp, refs, normalizer) for i, (refs, hyp) in enumerate(pairs)))


def _score_one(id: str, text: str, references: Sequence[str], normalizer: Normalizer) -> "UtteranceScore":
    """Against the nearest reference: fewest word edits, then fewest character edits, then the first."""
    distance = _levenshtein().distance
    text = normalizer(text)
    candidates = [normalizer(reference) for reference in references]
    if len(candidates) > 1:
        candidates.sort(key=lambda reference: (distance(reference.split(), text.split()), distance(reference, text)))
    nearest = candidates[0]
    return UtteranceScore(id, nearest, text, _count(nearest.split(), text.split()), _count(nearest, text))


def _count(reference: Sequence[str], hypothesis: Sequence[str]) -> Errors:
    edits = Counter(edit.tag for edit in _levenshtein().editops(reference, hypothesis))
    return Errors(edits["replace"], edits["insert"], edits["delete"], len(reference))


def _levenshtein() -> Any:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise MissingExtra("rapidfuzz", "train") from error
    return Levenshtein


# -------------------------------------------------------------------------------------------- hypotheses and references


@dataclass(frozen=True)
class Decoded:
    """A line of hyp.jsonl: what was recognised, what should have been (none, one or several), its log-probability."""

    id: str
    text: str
    references: tuple[str, ...] = ()
    score: float | None = None


def write_hyps(path: str | Path, decoded: Iterable[Decoded]) -> None:
    """Write hyp.jsonl: one object a line with id, text, reference (null, a string, or a list of them) and score.

    Written beside its place and renamed, so that a file that exists is whole.
    """
    lines = []
    for item in decoded:
        reference = item.references[0] if len(item.references) == 1 else list(item.references) or None
        line = {"id": item.id, "text": item.text, "reference": reference, "score": item.score}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    make_folder(Path(path).parent)
    write_text(Path(path), "".join(lines))


def read_hyps(path: str | Path) -> list[Decoded]:
    """Read hyp.jsonl. Keys other than id, text, reference and score are ignored; reference and score may be missing."""
    decoded: dict[str, Decoded] = {}
    for number, fields in read_rows(path):
        where = f"{path}:{number}"
        id = _new_id(fields.get("id"), decoded, where)
        text, score = fields.get("text"), fields.get("score")
        if not isinstance(text, str):
            raise WildCTCError(f'{where}: utterance {id} has no "text" (a string)')
        if not (score is None or (isinstance(score, int | float) and not isinstance(score, bool))):
            raise WildCTCError(f'{where}: "score" of utterance {id} is not a number')
        reference = fields.get("reference")
        decoded[id] = Decoded(id, text, () if reference is None else _texts(reference, id, where), score)
    if not decoded:
        raise WildCTCError(f"{path}: no utterances in it")
    return list(decoded.values())


def read_references(paths: Iterable[str | Path]) -> dict[str, tuple[str, ...]]:
    """References by utterance id, from one or more files: each adds its own to those of the files before it.

    Told apart by name. `.jsonl`, `.jsonl.gz`: objects with "id" and "reference" or "text" (a string or a list of
    alternatives), or lhotse cuts. `.tsv`: id and text in the first two columns, or where a header says. Anything else
    is a Kaldi text file: the id, a space, the text.
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
    """Utterances as `load_manifest` names them: after their file if they have no id."""
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


def _new_id(id: Any, seen: Mapping[str, object], where: str) -> str:
    if not isinstance(id, str) or not id:
        raise WildCTCError(f'{where}: no utterance "id" (a string)')
    if id in seen:
        raise WildCTCError(f"{where}: utterance {id} occurs a second time")
    return id


def _texts(value: Any, id: str, where: str) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise WildCTCError(f"{where}: the reference of utterance {id} is neither a text nor a list of texts")
    return texts


# -------------------------------------------------------------------------------------------------------------- scoring


@dataclass(frozen=True)
class UtteranceScore:
    """An utterance's normalised texts (the nearest reference, if there were several) and their differences."""

    id: str
    reference: str
    text: str
    words: Errors
    characters: Errors


@dataclass(frozen=True)
class Score:
    """Error counts of a test set; `print(score)` shows them, `score.listing()` shows where they are."""

    utterances: tuple[UtteranceScore, ...]

    @cached_property
    def words(self) -> Errors:
        return sum((u.words for u in self.utterances), Errors())

    @cached_property
    def characters(self) -> Errors:
        return sum((u.characters for u in self.utterances), Errors())

    @property
    def wer(self) -> float:
        return self.words.rate

    @property
    def cer(self) -> float:
        return self.characters.rate

    def to_json(self) -> str:
        """Rates are fractions: 0.25 is 25%."""
        per_utterance = [
            {"id": u.id, "reference": u.reference, "text": u.text}
            | {"words": u.words.to_dict(), "characters": u.characters.to_dict()}
            for u in self.utterances
        ]
        summary: dict[str, Any] = {"wer": self.wer, "cer": self.cer}
        summary |= {"words": self.words.to_dict(), "characters": self.characters.to_dict()}
        return json.dumps(summary | {"utterances": per_utterance}, ensure_ascii=False, indent=1)

    def __str__(self) -> str:
        wrong = sum(u.words.total > 0 for u in self.utterances)
        rows = [
            [name, f"{e.rate:.2%}"]
            + [f"{n:,}" for n in (e.total, e.substitutions, e.insertions, e.deletions, e.reference)]
            for name, e in (("words (WER)", self.words), ("characters (CER)", self.characters))
        ]
        header = ["", "rate", "errors", "substituted", "inserted", "deleted", "in reference"]
        share = f"{wrong / max(len(self.utterances), 1):.1%}"
        return f"{len(self.utterances):,} utterances, {wrong:,} of them ({share}) with errors\n\n{table(header, rows)}"

    def listing(self, limit: int | None = None, width: int = 100) -> str:
        """Utterances with word errors, the most errors first, reference over hypothesis and the kind of error below.

        >>> print(score([Decoded("u1", "orang datai ari rumah nya", ("urang ka datai ari rumah",))]).listing())
        u1: 3 errors in 5 words (1 substituted, 1 inserted, 1 deleted)
          ref  urang  ka  datai  ari  rumah  ***
          hyp  orang  **  datai  ari  rumah  nya
               S      D                      I
        """
        wrong = sorted((u for u in self.utterances if u.words.total), key=lambda u: -u.words.total)
        return "\n\n".join(_list_errors(u, width) for u in wrong[:limit])


def score(
    decoded: Iterable[Decoded],
    references: Mapping[str, Sequence[str]] | None = None,
    normalizer: Normalizer = AS_WRITTEN,
) -> Score:
    """Score hypotheses against `references` (by utterance id) or else against the references that they came with.

    An utterance without a reference is an error. References without a hypothesis are left out, and said to be: the file
    may hold other splits too, or utterances whose audio could not be decoded.

    >>> result = score([Decoded("u1", "a x c", ("a b c",)), Decoded("u2", "d", ("D", "d"))])
    >>> print(result)
    2 utterances, 1 of them (50.0%) with errors
    <BLANKLINE>
                        rate  errors  substituted  inserted  deleted  in reference
    ──────────────────────────────────────────────────────────────────────────────
    words (WER)       25.00%       1            1         0        0             4
    characters (CER)  16.67%       1            1         0        0             6
    """
    hypotheses = list(decoded)
    if not hypotheses:
        raise WildCTCError("nothing to score: no hypotheses given")
    twice = [id for id, n in Counter(h.id for h in hypotheses).items() if n > 1]
    if twice:
        raise WildCTCError(f"{name_some(twice)} decoded more than once: keep one hypothesis of each")
    if references is None:
        references = {h.id: h.references for h in hypotheses}
    lacking = [h.id for h in hypotheses if not references.get(h.id)]
    if lacking:
        raise WildCTCError(f"no reference for {name_some(lacking)}: give --reference files that have them")
    undecoded = sorted(references.keys() - {h.id for h in hypotheses})
    if undecoded:
        _log.warning("not counted, since there is no hypothesis: %s", name_some(undecoded))
    return Score(tuple(_score_one(h.id, h.text, references[h.id], normalizer) for h in hypotheses))


def name_some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 3:,} more" if len(ids) > 3 else ""
    return f"utterance{'s' * (len(ids) > 1)} {', '.join(ids[:3])}{more}"


# ----------------------------------------------------------------------------------------------------- for the terminal


def display_width(text: str) -> int:
    """Terminal cells that the text takes: none for combining marks and joiners, two for wide (East Asian, emoji).

    >>> display_width("abc"), display_width("日本"), display_width("e\\u0301"), display_width("हिन्दी")
    (3, 4, 1, 5)
    """
    return sum(_cell_width(char) for char in text)


def _cell_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf") and char != "\u00ad":  # the soft hyphen does show
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns lined up: the first to the left, the others to the right.

    >>> print(table(["name", "n"], [["日本", "1"], ["x", "20"]]))
    name   n
    ────────
    日本   1
    x     20
    """
    widths = [max(map(display_width, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        padding = [" " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [row[0] + padding[0], *(pad + cell for pad, cell in zip(padding[1:], row[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def _list_errors(utterance: UtteranceScore, width: int) -> str:
    e = utterance.words
    kinds = f"{e.substitutions} substituted, {e.insertions} inserted, {e.deletions} deleted"
    title = f"{utterance.id}: {e.total} error{'s' * (e.total > 1)} in {e.reference} words ({kinds})"
    blocks: list[list[list[str]]] = [[["  ref"], ["  hyp"], ["     "]]]
    used = 5
    for kind, reference, hypothesis in align(utterance.reference.split(), utterance.text.split()):
        cells = [reference or "*" * display_width(hypothesis or ""), hypothesis or "*" * display_width(reference or "")]
        column = _padded([*cells, kind.replace("=", "")])
        wide = 2 + display_width(column[0])
        if used + wide > width and used > 5:
            blocks.append([["  ref"], ["  hyp"], ["     "]])
            used = 5
        for line, cell in zip(blocks[-1], column, strict=True):
            line.append(cell)
        used += wide
    return "\n".join([title, *("\n".join("  ".join(line).rstrip() for line in block) for block in blocks)])


def _padded(cells: Sequence[str]) -> list[str]:
    """Cells of one column, equally wide. A left-to-right mark after a right-to-left word keeps the columns' order."""
    width = max(map(display_width, cells))
    return [cell + _mark(cell) + " " * (width - display_width(cell)) for cell in cells]


def _mark(cell: str) -> str:
    return "\u200e" if any(unicodedata.bidirectional(char) in ("R", "AL") for char in cell) else ""
