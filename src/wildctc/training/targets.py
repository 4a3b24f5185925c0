"""What an utterance is trained on: labels, words, weights, and the graph of its writings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from wildctc.corpora.preparation import Rejects
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.lattice.feasibility import infeasible
from wildctc.lattice.transcripts import TranscriptGraph
from wildctc.scoring.transcripts import load_reader
from wildctc.text.alternatives import Writings, every_word, first_writing
from wildctc.text.normalisation import Normalizer
from wildctc.text.reader import Reader
from wildctc.text.segmentation import make_graph
from wildctc.text.units import PhoneUnits, Units, name_characters
from wildctc.text.word_weights import follow_words
from wildctc.training.settings import DataConfig


@dataclass(frozen=True)
class Example:
    """A usable utterance at one speed, with its target.

    Attributes:
        utterance: The utterance.
        speed: The factor by which its audio is played faster.
        frames: Frames of features.
        tokens: The labels of the target.
        words: The word of each label, −1 for none.
        weights: One number for each word of the target, which is added to the weights of the word's bypasses; None for
            none.
        group: The number of the group whose noise rates it has.
        writings: All its writings; None if there is only one. `tokens` and `words` are those of the first.
        graph: The graph of its writings, with all pronunciations of phones; None if there is only one path.
    """

    utterance: Utterance
    speed: float
    frames: int
    tokens: list[int]
    words: list[int]
    weights: list[float] | None = None
    group: int = 0
    writings: Writings | None = None
    graph: TranscriptGraph | None = None


def make_reader(config: DataConfig) -> Reader:
    """Make what reads the transcripts of a run.

    Args:
        config: The settings of the data.

    Returns:
        The reader.

    Raises:
        WildCTCError: The file of variants cannot be used.
    """
    normalizer = Normalizer(config.lower, config.strip_punctuation, config.keep_invisible)
    return load_reader(normalizer, config.variants, config.texts == "shares")


def texts_to_learn(found: str | Writings) -> list[str]:
    """Give the texts of a transcript that units are learned from.

    Args:
        found: The transcript.

    Returns:
        The first writing, and each other alternative.
    """
    if isinstance(found, str):
        return [found]
    return [found.first, *(" ".join(words) for slot in found.slots for words in slot.alternatives[1:] if words)]


def make_target(utterance: Utterance, found: str | Writings, units: Units) -> Example:
    """Make the example of an utterance whose frames are not known yet.

    Args:
        utterance: The utterance.
        found: Its transcript, as a `Reader` has read it.
        units: The units.

    Returns:
        An example with 0 frames, at speed 1.

    Raises:
        UtteranceError: The transcript cannot be used.
    """
    writings = None if isinstance(found, str) else found
    text = first_writing(found)
    if outside := units.missing(every_word(found)):
        raise UtteranceError(utterance, f"{units.outside}: {name_characters(outside)}")
    tokens = units.encode(text)
    if not tokens and writings is None:
        raise UtteranceError(utterance, "empty transcript")
    if writings is not None and utterance.weights is not None:
        raise UtteranceError(utterance, "weights and alternatives: words with alternatives cannot have weights yet")
    weights = _word_weights(utterance, units)
    graph = None
    if writings is not None or (isinstance(units, PhoneUnits) and units.is_ambiguous(text)):
        try:
            graph = make_graph(Writings.of(found), units)
        except WildCTCError as error:
            raise UtteranceError(utterance, f"alternatives: {error}") from None
    return Example(utterance, 1.0, 0, tokens, units.words(tokens), weights, writings=writings, graph=graph)


def _word_weights(utterance: Utterance, units: Units) -> list[float] | None:
    """The weights of the words of an utterance's target, which may be other words than those of its transcript."""
    if utterance.weights is None:
        return None
    try:
        weights = follow_words(utterance.weights, utterance.text, units.normalizer)
        count = max(units.words(units.encode(utterance.text))) + 1
        if len(weights) != count:
            raise ValueError(f"{len(weights)} weights for {count} words of the units")
    except ValueError as error:
        raise UtteranceError(utterance, f"weights do not match the transcript: {error}") from None
    return weights


def too_long(
    utterances: Sequence[Utterance],
    targets: Mapping[str, Example],
    frames: Mapping[str, Sequence[int]],
    speeds: Sequence[float],
    output_lengths: Callable[[torch.Tensor], torch.Tensor],
    rejects: Rejects,
) -> set[str]:
    """Find transcripts that are too long for their audio at any speed, in each of their writings.

    The rule is that of plain CTC for every criterion, so that every criterion trains on the same utterances.

    Args:
        utterances: The utterances.
        targets: Their examples, by id.
        frames: Their frames at each speed, by id.
        speeds: The speeds.
        output_lengths: Frames of features (N,) → frames of logits (N,).
        rejects: Gets the utterances that are found.

    Returns:
        Their ids.
    """
    found: set[str] = set()
    for position, speed in enumerate(speeds):
        lengths = output_lengths(torch.tensor([frames[u.id][position] for u in utterances], dtype=torch.int64))
        at = f" at speed {speed}" if speed != 1 else ""
        for index, needed in _short([targets[u.id] for u in utterances], lengths):
            utterance = utterances[index]
            if utterance.id not in found:
                found.add(utterance.id)
                reason = f"transcript too long for its audio: needs {needed} frames{at}, has {int(lengths[index])}"
                rejects.add(UtteranceError(utterance, reason))
    return found


def _short(targets: Sequence[Example], lengths: torch.Tensor) -> list[tuple[int, int]]:
    """The numbers of the utterances with fewer frames than they need, and how many they need."""
    several = [i for i, target in enumerate(targets) if target.graph is not None]
    single = [i for i, target in enumerate(targets) if target.graph is None]
    labels = torch.tensor([t for i in single for t in targets[i].tokens], dtype=torch.int64)
    found = infeasible(labels, lengths[single], [len(targets[i].tokens) for i in single])
    short = [(single[s.index], s.needed) for s in found]
    graphs = [graph for target in targets if (graph := target.graph) is not None]
    if graphs:
        short += [(several[s.index], s.needed) for s in infeasible(graphs, lengths[several])]
    return sorted(short)
