"""The probe: how probable is it that a token or a word of a transcript was not said?

There are two graphs, the same for every model. In the token graph, each token may be bypassed without a penalty; in the
word graph, each word. In both, wildcards in the gaps stand for speech that is not written. Times come from the best
path of the token graph. Beside them, a forced alignment without wildcards says how well each token fits its frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.align import Alignment, wildcard_align
from wildctc.lattice.arcs import padded_rows
from wildctc.lattice.checks import Lengths, check_logits, integers, lengths_of
from wildctc.lattice.functional import wildcard_posteriors
from wildctc.lattice.posteriors import Posteriors
from wildctc.lattice.probe_arcs import token_probe_arcs, word_probe_arcs
from wildctc.probe.hypothesis_alignment import HypothesisAlignment, align_hypothesis
from wildctc.probe.records import ProbedToken, ProbedUtterance, ProbedWord
from wildctc.text.words import word_ids

_MARGIN = 0.1  # the most seconds that a token is widened on each side: a CTC model marks a sound, not its extent


class Spelling:
    """How labels are written as text.

    If some tokens start with `▁`, they are SentencePiece pieces. Otherwise the space is " ", or "|" if there is no " ".
    Without any of these, the whole transcript is one word.

    Attributes:
        pieces: Whether the tokens are SentencePiece pieces.
        strings: label → string, with " " for the space; "" for the blank.
    """

    def __init__(self, tokens: Sequence[str], blank: int = 0) -> None:
        """Find out what kind of tokens these are.

        Args:
            tokens: label → string.
            blank: The label of the blank.
        """
        self.pieces = any(token.startswith("▁") for token in tokens)
        mark = "▁" if self.pieces else " " if " " in tokens else "|"
        self.strings = ["" if i == blank else token.replace(mark, " ") for i, token in enumerate(tokens)]

    def words(self, labels: Sequence[int]) -> list[int]:
        """Find the word of each label.

        Args:
            labels: The labels of a transcript.

        Returns:
            The number of the word that each label belongs to, from 0; −1 for none.
        """
        strings = [self.strings[label] for label in labels]
        return word_ids(strings, start=" ") if self.pieces else word_ids(strings, space=" ")

    def spell(self, labels: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Write labels as text, without the space that pieces have before the first word.

        Args:
            labels: The labels of a transcript.

        Returns:
            The text, and for each label its characters (begin, stop) in the text.
        """
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
    """Probe a batch of utterances.

    Args:
        logits: (T, N, C), or (T, C) for one utterance.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated, as for `wildcard_ctc_loss`.
        input_lengths: (N,) frames of each utterance.
        target_lengths: (N,) labels of each transcript.
        blank: The label of the blank.
        tokens: label → string (see `Spelling`).
        self_loop: The log-weight of speech that is not written; None allows no such speech.
        frame_rate: Frames of logits per second, for the times.

    Returns:
        What was found in each utterance; its id is its number. None for an utterance without a path: it has too few
        frames, or its logits are not numbers.

    >>> labels = torch.tensor([4, 0, 1, 0, 2, 0, 3, 3])  # what was said: h-a-l-o
    >>> logits = 9.0 * torch.nn.functional.one_hot(labels, 6).float().unsqueeze(1)
    >>> [found] = probe_logits(logits, torch.tensor([[4, 5, 2, 3]]), [8], [4], tokens="-alohe")
    >>> found.text, found.heard, [(t.text, round(t.bypass, 2)) for t in found.tokens]
    ('helo', 'halo', [('h', 0.17), ('e', 1.0), ('l', 0.21), ('o', 0.03)])
    """
    if isinstance(tokens, Mapping):
        raise TypeError("tokens must be a list or a string, label → string, got a dict")
    # check the arguments, and bring targets into rows
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
    # run the graphs
    word_rows = [spelling.words(row) for row in rows]
    words = torch.tensor([row + [-1] * (targets.shape[1] - len(row)) for row in word_rows], dtype=torch.int64)
    graphs = run_graphs(logits, targets, frames, lengths, blank, words.reshape(targets.shape), self_loop)
    possible = (graphs.tokens.log_likelihood.isfinite() & graphs.words.log_likelihood.isfinite()).tolist()
    bypass, word_bypass, gaps = (_rows(x) for x in (graphs.tokens.bypass, graphs.words.word_bypass, graphs.gaps))
    # combine their numbers with the text of each utterance
    written = logits.argmax(2).T.tolist()
    misfits = forced_misfits(logits, targets, frames, lengths, blank)
    found: list[ProbedUtterance | None] = []
    for n, row in enumerate(rows):
        if not possible[n]:
            found.append(None)
            continue
        probe = _Utterance(spelling, row, word_rows[n], graphs.paths[n], written[n][: int(frames[n])], blank)
        utterance = probe.result(str(n), bypass[n], gaps[n][: len(row) + 1], word_bypass[n], frame_rate)
        for token, misfit in zip(utterance.tokens, misfits[n], strict=False):  # there are none without an alignment
            token.misfit = misfit
        found.append(utterance)
    return found


def _check_names(tokens: Sequence[str], rows: list[list[int]], outputs: int, frame_rate: float) -> None:
    """Check what the lattice cannot: that each output has a name. A tokenizer may have more names than outputs."""
    if len(tokens) < outputs:
        raise ValueError(f"tokens must name each of the {outputs} outputs, got {len(tokens)}")
    if not frame_rate > 0:
        raise ValueError(f"frame_rate must be greater than 0, got {frame_rate}")
    for n, row in enumerate(rows):
        for u, label in enumerate(row):
            if not 0 <= label < outputs:
                raise ValueError(f"utterance {n}: target {u} is {label}, must be between 0 and C - 1 = {outputs - 1}")


class Graphs(NamedTuple):
    """The lattice's results for a batch of N utterances.

    Attributes:
        tokens: Posteriors of the token graph.
        words: Posteriors of the word graph.
        paths: The best path of each utterance in the token graph.
    """

    tokens: Posteriors
    words: Posteriors
    paths: list[Alignment]

    @property
    def gaps(self) -> Tensor:
        """(N, S+1): the expected number of self-loops before each token and after the last, in the token graph."""
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
    """Run the token graph and the word graph on a batch.

    Args:
        logits: (T, N, C).
        targets: (N, S) padded labels.
        frames: (N,) frames of each utterance.
        lengths: (N,) labels of each transcript.
        blank: The label of the blank.
        words: (N, S) the word of each label, −1 for none.
        self_loop: The log-weight of speech that is not written; None allows no such speech.

    Returns:
        Posteriors of both graphs, and the best paths.
    """
    given = logits, targets, frames, lengths, blank
    by_token, by_word = token_probe_arcs(self_loop), word_probe_arcs(self_loop)
    return Graphs(
        wildcard_posteriors(*given, wildcards=by_token),
        wildcard_posteriors(*given, wildcards=by_word, words=words),
        wildcard_align(*given, wildcards=by_token),
    )


def forced_misfits(
    logits: Tensor, targets: Tensor, frames: Lengths, lengths: Lengths, blank: int = 0
) -> list[list[float]]:
    """Score how badly each token fits its frames, if the transcript is taken at its word: no wildcards.

    Args:
        logits: (T, N, C).
        targets: (N, S) padded labels.
        frames: (N,) frames of each utterance.
        lengths: (N,) labels of each transcript.
        blank: The label of the blank.

    Returns:
        For each utterance, minus the mean log-probability of each token over its frames on the best path of plain CTC;
        none for an utterance without such a path.
    """
    log_p, found = logits.float().log_softmax(2), []
    for n, path in enumerate(wildcard_align(logits, targets, frames, lengths, blank)):
        labels = path.frames.to(log_p.device)
        emitted = log_p[: len(labels), n].gather(1, labels.unsqueeze(1)).squeeze(1).tolist()
        found.append([max(0.0, -fmean(emitted[span.start : span.end])) for span in path.tokens])
    return found


def _rows(values: Tensor | None) -> list[list[float]]:
    assert values is not None  # the graph has such arcs
    return values.tolist()


class _Utterance:
    """Combines the numbers of one utterance with its text."""

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
        # the frame at the centre of each written character
        centres = [0.0] * len(self.text)
        for (begin, stop), (start, end) in zip(self.spans, self.frames, strict=True):
            for i in range(begin, stop):
                centres[i] = start + (end - start) * (i - begin + 0.5) / (stop - begin)
        # characters that both paths have at the same time
        anchors = [
            pair
            for (begin, stop), (first, last) in _agreed(path, self.spans, runs)
            if heard[first:last] == self.text[begin:stop]
            for pair in zip(range(begin, stop), range(first, last), strict=True)
        ]
        self.aligned = align_hypothesis(self.text, heard, centres, heard_at, anchors)

    def result(
        self, name: str, bypass: list[float], gaps: list[float], word_bypass: list[float], frame_rate: float
    ) -> ProbedUtterance:
        heard, between = _by_token(self.aligned, self.text, self.spans)
        times = _times(self.frames, self.length, frame_rate)
        tokens = [
            ProbedToken(self.text[begin:stop], begin, stop, *times[u], _share(bypass[u]), heard[u])
            for u, (begin, stop) in enumerate(self.spans)
        ]
        words = [self._word(tokens, w, _share(word_bypass[w])) for w in range(max(self.words, default=-1) + 1)]
        duration = self.length / frame_rate
        return ProbedUtterance(
            name, "", 0.0, duration, 0, None, self.text, self.aligned.heard, tokens, words, gaps, between
        )

    def _word(self, tokens: list[ProbedToken], word: int, bypass: float) -> ProbedWord:
        first = self.words.index(word)
        last = len(self.words) - 1 - self.words[::-1].index(word)
        begin, stop = tokens[first].begin, tokens[last].stop
        inside = first
        if self.text[begin:stop].startswith(" "):
            begin += 1
            inside = first + 1 if tokens[first].text == " " and last > first else first
        heard = self.aligned.words_over(begin, stop)
        start, end = tokens[inside].start, tokens[last].end
        return ProbedWord(self.text[begin:stop], begin, stop, first, last, start, end, bypass, heard)


def _share(probability: float) -> float:
    return min(1.0, max(0.0, probability))  # rounding


class _Run(NamedTuple):
    """A label on frames start:end of the model's own path, and its characters first:last in the heard text."""

    label: int
    start: int
    end: int
    first: int
    last: int


def _heard(path: list[int], spelling: Spelling, blank: int) -> tuple[str, list[float], list[_Run]]:
    """The text of a frame-level path (with single spaces), the frame of each of its characters, and the path's runs."""
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
    """Pairs of spans, in the transcript and in the heard text, where both have the same token at the same time."""
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


def _by_token(aligned: HypothesisAlignment, text: str, spans: list[tuple[int, int]]) -> tuple[list[str], list[str]]:
    """What was heard at each token, and in the gap before each token and after the last.

    Letters beside a changed token belong to it ("e" was heard as "ai"); other letters stay in their gap.
    """
    at, gaps = aligned.slots()
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
    """The start and end of each token in seconds, widened by half the distance to its neighbours, at most _MARGIN."""
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    margin = _MARGIN * frame_rate
    found = []
    for before, start, end, after in zip([0, *ends], starts, ends, [*starts[1:], length], strict=False):
        left, right = min(0.5 * (start - before), margin), min(0.5 * (after - end), margin)
        found.append(((start - left) / frame_rate, (end + right) / frame_rate))
    return found
