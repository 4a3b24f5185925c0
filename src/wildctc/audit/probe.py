"""The probe: how probable is it that each token and each word of a transcript was not said?

Two graphs, the same for every model: tokens on one in which each token may be bypassed at no price, words on one in
which each word may. Wildcards in the gaps count speech that is not written. Times come from the best path of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.audit.heard import Laid, lay
from wildctc.audit.probed import ProbedToken, ProbedUtterance, ProbedWord, read_probe, write_probe
from wildctc.lattice.align import Alignment, wildcard_align
from wildctc.lattice.arcs import Lengths, Wildcards, check_logits, integers, lengths_of, padded_rows
from wildctc.lattice.functional import Posteriors, wildcard_posteriors
from wildctc.text import word_ids

__all__ = ["ProbedToken", "ProbedUtterance", "ProbedWord", "probe_logits", "read_probe", "write_probe"]

MARGIN = 0.1  # seconds of the silence beside it that a token gets: a CTC model marks a sound, not its extent


class Spelling:
    """What labels look like in text. tokens: label → string.

    With `▁` in front of some they are SentencePiece pieces; otherwise " ", or if there is none "|", is the space.
    Without either the whole transcript is one word.
    """

    def __init__(self, tokens: Sequence[str], blank: int = 0) -> None:
        self.pieces = any(token.startswith("▁") for token in tokens)
        mark = "▁" if self.pieces else " " if " " in tokens else "|"
        self.strings = ["" if i == blank else token.replace(mark, " ") for i, token in enumerate(tokens)]

    def words(self, labels: Sequence[int]) -> list[int]:
        """The word of each label, −1 for none."""
        strings = [self.strings[label] for label in labels]
        return word_ids(strings, start=" ") if self.pieces else word_ids(strings, space=" ")

    def spell(self, labels: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of labels and the characters begin…stop of each; pieces have no space before the first word."""
        strings = [self.strings[label] for label in labels]
        if self.pieces and strings:
            strings[0] = strings[0].removeprefix(" ")
        return "".join(strings), list(pairwise(accumulate(map(len, strings), initial=0)))


@torch.no_grad()
def probe_logits(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    *,
    tokens: Sequence[str],
    self_loop: float | None = 0.0,
    frame_rate: float = 1.0,
) -> list[ProbedUtterance | None]:
    """Probe a batch; None for an utterance without a path: too few frames, or logits that are not numbers.

    logits (T, N, C), targets and lengths as for `wildcard_ctc_loss`. tokens: label → string (see `Spelling`).
    self_loop: the weight of unwritten speech; None: there is none. frame_rate: frames a second, for the times.

    >>> labels = torch.tensor([4, 0, 1, 0, 2, 0, 3, 3])  # what was said: h-a-l-o
    >>> logits = 9.0 * torch.nn.functional.one_hot(labels, 6).float().unsqueeze(1)
    >>> [found] = probe_logits(logits, torch.tensor([[4, 5, 2, 3]]), [8], [4], tokens="-alohe")
    >>> found.text, found.heard, [(t.text, round(t.bypass, 2)) for t in found.tokens]
    ('helo', 'halo', [('h', 0.17), ('e', 1.0), ('l', 0.21), ('o', 0.03)])
    """
    if isinstance(tokens, Mapping):
        raise TypeError("tokens must be a list or a string, label → string, got a dict")
    check_logits(logits, blank)
    spelling = Spelling(tokens, blank)
    targets = integers(targets, "targets", logits.device)
    if logits.dim() == 2:
        logits, targets = logits.unsqueeze(1), targets.reshape(1, -1)
    size, device = logits.shape[1], logits.device
    frames = lengths_of(input_lengths, "input_lengths", size, device)
    lengths = lengths_of(target_lengths, "target_lengths", size, device)
    if targets.dim() == 1 and int(lengths.sum()) != targets.numel():
        total, there = int(lengths.sum()), targets.numel()
        raise ValueError(f"target_lengths add up to {total}, but there are {there} concatenated targets")
    targets = padded_rows(targets, lengths, blank)
    rows = [row[:n] for row, n in zip(targets.tolist(), lengths.tolist(), strict=True)]
    _check_names(tokens, rows, logits.shape[-1], frame_rate)
    word_rows = [spelling.words(row) for row in rows]
    words = torch.tensor([row + [-1] * (targets.shape[1] - len(row)) for row in word_rows], dtype=torch.int64)
    graphs = run_graphs(logits, targets, frames, lengths, blank, words.reshape(targets.shape), self_loop)
    possible = (graphs.tokens.log_likelihood.isfinite() & graphs.words.log_likelihood.isfinite()).tolist()
    bypass, word_bypass, gaps = (_rows(x) for x in (graphs.tokens.bypass, graphs.words.word_bypass, graphs.gaps))
    written = logits.argmax(2).T.tolist()
    found: list[ProbedUtterance | None] = []
    for n, row in enumerate(rows):
        if not possible[n]:
            found.append(None)
            continue
        probe = _Utterance(spelling, row, word_rows[n], graphs.paths[n], written[n][: int(frames[n])], blank)
        found.append(probe.result(str(n), bypass[n], gaps[n][: len(row) + 1], word_bypass[n], frame_rate))
    return found


def _check_names(tokens: Sequence[str], rows: list[list[int]], outputs: int, frame_rate: float) -> None:
    """What the lattice does not see: whether each output has a name. A tokenizer may have more names than outputs."""
    if len(tokens) < outputs:
        raise ValueError(f"tokens must name each of the {outputs} outputs, got {len(tokens)}")
    if not frame_rate > 0:
        raise ValueError(f"frame_rate must be greater than 0, got {frame_rate}")
    for n, row in enumerate(rows):
        for u, label in enumerate(row):
            if not 0 <= label < outputs:
                raise ValueError(f"utterance {n}: target {u} is {label}, must be between 0 and C - 1 = {outputs - 1}")


class Graphs(NamedTuple):
    """The lattice's answers for a batch: posteriors on the graph of tokens and on that of words, and best paths."""

    tokens: Posteriors
    words: Posteriors
    paths: list[Alignment]

    @property
    def gaps(self) -> Tensor:
        """(N, S+1) expected self-loops."""
        if self.tokens.self_loop is not None:
            return self.tokens.self_loop
        return torch.nn.functional.pad(torch.zeros_like(self.tokens.skipped), (0, 1))


def run_graphs(
    logits: Tensor,
    targets: Tensor,
    frames: Lengths,
    lengths: Lengths,
    blank: int,
    words: Tensor,
    self_loop: float | None,
) -> Graphs:
    """All that a probe asks of the lattice. targets, words: (N, S)."""
    given = logits, targets, frames, lengths, blank
    by_token = Wildcards(bypass=0.0, self_loop=self_loop)
    by_word = Wildcards(word_bypass=0.0, self_loop=self_loop, self_loop_at="word")
    return Graphs(
        wildcard_posteriors(*given, wildcards=by_token),
        wildcard_posteriors(*given, wildcards=by_word, words=words),
        wildcard_align(*given, wildcards=by_token),
    )


def _rows(values: Tensor | None) -> list[list[float]]:
    assert values is not None  # the graph has such arcs
    return values.tolist()


class _Utterance:
    """One utterance on its way from numbers to text."""

    def __init__(
        self,
        spelling: Spelling,
        labels: list[int],
        words: list[int],
        path: Alignment,
        written: list[int],
        blank: int,
    ) -> None:
        self.text, self.spans = spelling.spell(labels)
        self.words = words
        self.frames = [(span.start, span.end) for span in path.tokens]
        self.length = len(written)
        heard, heard_at, runs = _heard(written, spelling, blank)
        centres = [0.0] * len(self.text)
        for (begin, stop), (start, end) in zip(self.spans, self.frames, strict=True):
            for i in range(begin, stop):
                centres[i] = start + (end - start) * (i - begin + 0.5) / (stop - begin)
        anchors = [
            pair
            for (begin, stop), (first, last) in _agreed(path, self.spans, runs)
            if heard[first:last] == self.text[begin:stop]
            for pair in zip(range(begin, stop), range(first, last), strict=True)
        ]
        self.laid = lay(self.text, heard, centres, heard_at, anchors)

    def result(
        self, name: str, bypass: list[float], gaps: list[float], word_bypass: list[float], frame_rate: float
    ) -> ProbedUtterance:
        heard, between = _by_token(self.laid, self.text, self.spans)
        times = _times(self.frames, self.length, frame_rate)
        tokens = [
            ProbedToken(self.text[begin:stop], begin, stop, *times[u], _share(bypass[u]), heard[u])
            for u, (begin, stop) in enumerate(self.spans)
        ]
        words = [self._word(tokens, w, _share(word_bypass[w])) for w in range(max(self.words, default=-1) + 1)]
        duration = self.length / frame_rate
        return ProbedUtterance(
            name, "", 0.0, duration, 0, None, self.text, self.laid.heard, tokens, words, gaps, between
        )

    def _word(self, tokens: list[ProbedToken], word: int, bypass: float) -> ProbedWord:
        first = self.words.index(word)
        last = len(self.words) - 1 - self.words[::-1].index(word)
        begin, stop = tokens[first].begin, tokens[last].stop
        inside = first
        if self.text[begin:stop].startswith(" "):
            begin += 1
            inside = first + 1 if tokens[first].text == " " and last > first else first
        heard = self.laid.words_over(begin, stop)
        start, end = tokens[inside].start, tokens[last].end
        return ProbedWord(self.text[begin:stop], begin, stop, first, last, start, end, bypass, heard)


def _share(probability: float) -> float:
    return min(1.0, max(0.0, probability))  # rounding


class _Run(NamedTuple):
    """A label on frames start…end of the model's own path, and its characters first…last in the heard text."""

    label: int
    start: int
    end: int
    first: int
    last: int


def _heard(path: list[int], spelling: Spelling, blank: int) -> tuple[str, list[float], list[_Run]]:
    """The text of a frame-level path, with single spaces, the frame at which each character lies, and its runs."""
    text: list[str] = []
    at: list[float] = []
    runs: list[_Run] = []
    ends = [t for t, (label, after) in enumerate(pairwise([*path, -1]), start=1) if label != after]
    for start, end in pairwise([0, *ends]):
        if (label := path[start]) != blank:
            first, string = len(text), spelling.strings[label]
            for i, char in enumerate(string):
                if char != " " or (text and text[-1] != " "):
                    text.append(char)
                    at.append(start + (end - start) * (i + 0.5) / len(string))
            runs.append(_Run(label, start, end, first, len(text)))
    if text and text[-1] == " ":
        text.pop()
        at.pop()
    return "".join(text), at, runs


def _agreed(
    path: Alignment, spans: list[tuple[int, int]], runs: list[_Run]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Characters of the transcript and of the heard text where both have the same token at the same time."""
    r = 0
    for token, span in zip(path.tokens, spans, strict=True):
        if token.bypassed:
            continue
        while r < len(runs) and runs[r].end <= token.start:
            r += 1
        for k in range(r, len(runs)):
            if runs[k].start >= token.end:
                break
            if runs[k].label == token.label:
                yield span, (runs[k].first, runs[k].last)
                r = k + 1
                break


def _by_token(laid: Laid, text: str, spans: list[tuple[int, int]]) -> tuple[list[str], list[str]]:
    """What was heard at each token, and in the gap before each token and after the last.

    Letters beside a changed token go to it ("e" was heard as "ai"); otherwise they stay in their gap.
    """
    at, gaps = laid.slots()
    heard = []
    for begin, stop in spans:
        inside = [part for i in range(begin, stop) for part in ((gaps[i] if i > begin else ""), at[i])]
        heard.append("".join(inside))
    between = [gaps[begin] for begin, _ in spans] + [gaps[-1]]
    for k, extra in enumerate(between):
        if not extra or " " in extra:
            continue
        if k > 0 and _changed(heard[k - 1], text[slice(*spans[k - 1])]):
            heard[k - 1], between[k] = heard[k - 1] + extra, ""
        elif k < len(heard) and _changed(heard[k], text[slice(*spans[k])]):
            heard[k], between[k] = extra + heard[k], ""
    return heard, between


def _changed(heard: str, written: str) -> bool:
    return heard not in ("", written) and " " not in heard


def _times(spans: list[tuple[int, int]], length: int, frame_rate: float) -> list[tuple[float, float]]:
    """Seconds of each token, widened into what lies between it and its neighbours: half of that, at most MARGIN."""
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    margin = MARGIN * frame_rate
    found = []
    for before, start, end, after in zip([0, *ends], starts, ends, [*starts[1:], length], strict=False):
        left, right = min(0.5 * (start - before), margin), min(0.5 * (after - end), margin)
        found.append(((start - left) / frame_rate, (end + right) / frame_rate))
    return found
