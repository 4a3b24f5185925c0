"""What cannot be right is refused before native code reads it, with the utterance, the value and the limit."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from wildctc import (
    CRITERIA,
    Criterion,
    WildcardCTCLoss,
    Wildcards,
    infeasible,
    wildcard_align,
    wildcard_ctc_loss,
    wildcard_posteriors,
)
from wildctc.lattice import reference
from wildctc.lattice.arcs import as_lattice

WORDS = Wildcards(word_bypass=-1.0)
HUGE = 2**62


def arguments(**changes) -> dict:
    """Three good utterances, T = 7, C = 5, S = 3, but for the changes."""
    good = {
        "logits": torch.zeros(7, 3, 5),
        "targets": torch.tensor([[1, 2, 3], [4, 4, 0], [2, 0, 0]]),
        "input_lengths": [7, 6, 5],
        "target_lengths": [3, 2, 1],
        "blank": 0,
        "wildcards": Wildcards(bypass=-1.0),
        "words": torch.tensor([[0, 0, 1], [0, 1, -1], [0, -1, -1]]),
    }
    return {**good, **changes}


def changed(name: str, place: tuple[int, ...], value: float) -> dict:
    tensor = torch.as_tensor(arguments()[name]).clone()
    tensor[place] = value
    return {name: tensor}


def weights(name: str, width: int, n: int, i: int, value: float) -> dict:
    tensor = torch.zeros(3, width, dtype=torch.float64)
    tensor[n, i] = value
    return {"wildcards": Wildcards(**{name: tensor})}


CASES = {
    "label too large": (changed("targets", (1, 1), 5), r"utterance 1: target 1 is 5, must be between 0 and C - 1 = 4"),
    "label huge": (changed("targets", (0, 2), HUGE), rf"utterance 0: target 2 is {HUGE}, must be .* C - 1 = 4"),
    "label negative": (changed("targets", (0, 0), -1), r"utterance 0: target 0 is -1, must be between 0 and C - 1 = 4"),
    "label is blank": (changed("targets", (2, 0), 0), r"utterance 2: target 0 is 0, which is the blank"),
    "label is another blank": ({"blank": 3}, r"utterance 0: target 2 is 3, which is the blank"),
    "input length negative": (
        {"input_lengths": [7, -1, 5]},
        r"utterance 1: input_length is -1, must be between 0 and T = 7",
    ),
    "input length too long": (
        {"input_lengths": torch.tensor([7, 6, 8])},
        r"utterance 2: input_length is 8, must be between 0 and T = 7",
    ),
    "target length negative": (
        {"target_lengths": [3, 2, -5]},
        r"utterance 2: target_length is -5, must be between 0 and S = 3",
    ),
    "target length too long": (
        {"target_lengths": [4, 2, 1]},
        r"utterance 0: target_length is 4, must be between 0 and S = 3",
    ),
    "target length huge": ({"target_lengths": [3, HUGE, 1]}, rf"utterance 1: target_length is {HUGE}, .* S = 3"),
    "concatenated targets too few": (
        {"targets": torch.tensor([1, 2, 3, 4, 4]), "words": torch.tensor([0, 0, 1, 0, 1])},
        r"utterance 2: target_length is 1, must be between 0 and the number of remaining targets = 0",
    ),
    "concatenated targets too many": (
        {"targets": torch.ones(9, dtype=torch.int64), "words": None},
        r"target_lengths add up to 6, but there are 9 concatenated targets",
    ),
    "too few input lengths": ({"input_lengths": [7, 6]}, r"input_lengths must hold one length .* N = 3 .*\(2,\)"),
    "too many target lengths": (
        {"target_lengths": [3, 2, 1, 1]},
        r"target_lengths must hold one length for each of N = 3 utterances, got \(4,\)",
    ),
    "lengths in a table": ({"input_lengths": torch.ones(3, 1).long()}, r"input_lengths must hold .* got \(3, 1\)"),
    "lengths not whole": ({"input_lengths": torch.tensor([7.0, 6.0, 5.0])}, r"input_lengths must be integers"),
    "logits with one dimension": ({"logits": torch.zeros(7)}, r"logits must be .* got torch.float32 \(7,\)"),
    "logits with four dimensions": ({"logits": torch.zeros(7, 3, 5, 1)}, r"logits must be .* \(7, 3, 5, 1\)"),
    "logits of integers": ({"logits": torch.zeros(7, 3, 5).long()}, r"logits must be floating point.* torch.int64"),
    "targets with three dimensions": ({"targets": torch.ones(3, 3, 1).long()}, r"targets must be .* got \(3, 3, 1\)"),
    "targets of another batch": (
        {"targets": torch.ones(2, 3).long()},
        r"targets must be \(N, S\) with N = 3 .*\(2, 3\)",
    ),
    "targets of floats": ({"targets": torch.ones(3, 3)}, r"targets must be a tensor of integers, got torch.float32"),
    "targets in a list": ({"targets": [[1, 2, 3]] * 3}, r"targets must be a tensor of integers, got <class 'list'>"),
    "words in a list": ({"words": [[0, 0, 1]] * 3}, r"words must be a tensor of integers, got <class 'list'>"),
    "lengths of floats in a list": ({"input_lengths": [7.0, 6.0, 5.5]}, r"input_lengths must be integers"),
    "blank negative": ({"blank": -1}, r"blank is -1, must be between 0 and C - 1 = 4"),
    "blank too large": ({"blank": 5}, r"blank is 5, must be between 0 and C - 1 = 4"),
    "no words": ({"words": None, "wildcards": WORDS}, r"word_bypass and self_loop_at='word' need words"),
    "no words for self-loops": (
        {"words": None, "wildcards": Wildcards(self_loop=0.0, self_loop_at="word")},
        r"word_bypass and self_loop_at='word' need words",
    ),
    "words of another shape": (
        {"words": torch.zeros(3, 2).long(), "wildcards": WORDS},
        r"words must have the shape of targets, \(3, 3\), got \(3, 2\)",
    ),
    "words not contiguous": (
        {**changed("words", (0, 1), 1), "words": torch.tensor([[0, 1, 0], [0, 1, -1], [0, 0, 0]]), "wildcards": WORDS},
        r"utterance 0: words are not contiguous: word 0 at token 2 comes after word 1",
    ),
    "a word split by a separator": (
        {"words": torch.tensor([[0, -1, 0], [0, 1, -1], [0, 0, 0]]), "wildcards": WORDS},
        r"utterance 0: words are not contiguous: word 0 at token 2",
    ),
    "word below -1": (
        {**changed("words", (1, 0), -2), "wildcards": WORDS},
        r"utterance 1: word of token 0 is -2, must be -1 \(in no word\) or more",
    ),
    "word without a weight": (
        {**changed("words", (0, 2), 2), "wildcards": Wildcards(word_bypass=torch.zeros(3, 2))},
        r"utterance 0: word of token 2 is 2, but word_bypass has weights for words 0 to 1 only",
    ),
    "word huge": (
        {**changed("words", (0, 2), HUGE), "wildcards": Wildcards(word_bypass=torch.zeros(3, 2))},
        rf"utterance 0: word of token 2 is {HUGE}",
    ),
    "bypass NaN": (weights("bypass", 3, 1, 1, math.nan), r"utterance 1: bypass weight 1 is NaN, must be"),
    "bypass inf": (weights("bypass", 3, 2, 0, math.inf), r"utterance 2: bypass weight 0 is inf, must be"),
    "self-loop NaN": (weights("self_loop", 4, 0, 3, math.nan), r"utterance 0: self_loop weight 3 is NaN, must be"),
    "word bypass inf": (
        weights("word_bypass", 2, 1, 1, math.inf),
        r"utterance 1: word_bypass weight 1 is inf, must be",
    ),
    "bypass too narrow": (
        {"wildcards": Wildcards(bypass=torch.zeros(3, 2))},
        r"bypass must be a number or a tensor \(N, S\) = \(3, 3\), got \(3, 2\)",
    ),
    "bypass of another batch": ({"wildcards": Wildcards(bypass=torch.zeros(2, 3))}, r"bypass must be .* got \(2, 3\)"),
    "bypass a vector": ({"wildcards": Wildcards(bypass=torch.zeros(3))}, r"bypass must be .* got \(3,\)"),
    "self-loop too narrow": (
        {"wildcards": Wildcards(self_loop=torch.zeros(3, 3))},
        r"self_loop must be a number or a tensor \(N, S \+ 1\) = \(3, 4\), got \(3, 3\)",
    ),
    "word bypass of another batch": (
        {"wildcards": Wildcards(word_bypass=torch.zeros(4, 2))},
        r"word_bypass must be a number or a tensor \(N, W\) = \(3, W\), got \(4, 2\)",
    ),
    "bypass of integers": ({"wildcards": Wildcards(bypass=torch.zeros(3, 3).long())}, r"bypass must be floating point"),
    "per-arc weights too few for concatenated targets": (
        {
            "targets": torch.tensor([1, 2, 3, 4, 4, 2]),
            "words": None,
            "wildcards": Wildcards(bypass=torch.zeros(3, 2)),
        },
        r"utterance 0: bypass has 2 weights, needs 3",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_by_the_loss(case, backend):
    change, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        wildcard_ctc_loss(**arguments(**change), backend=backend)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.zeros((7, 3, 5), dtype=np.float32)}, "logits must be a tensor, got ndarray"),
        ({"blank": 0.0}, "blank is 0.0, must be an integer"),
        ({"blank": None}, "blank is None, must be an integer"),
        ({"input_lengths": None}, "input_lengths must be integers, .* got None"),
        ({"target_lengths": ["3", "2", "1"]}, r"target_lengths must be integers, .* got \['3', '2', '1'\]"),
        (
            {"wildcards": "otc-t"},
            r"wildcards must be Wildcards or None, got 'otc-t'.*Criterion\(\"otc-t\"\)\.wildcards",
        ),
        ({"wildcards": {}}, "wildcards must be Wildcards or None, got {}"),
        ({"wildcards": -5.0}, "wildcards must be Wildcards or None, got -5.0"),
    ],
)
def test_another_type_is_refused_by_all(change, message, backend):
    for function in (wildcard_ctc_loss, wildcard_posteriors, wildcard_align):
        with pytest.raises(TypeError, match=message):
            function(**arguments(**change), backend=backend)


@pytest.mark.parametrize("name", ["targets", "words"])
def test_a_list_is_refused_for_one_utterance_too(name):
    given = {"logits": torch.zeros(7, 5), "targets": torch.tensor([1, 2]), "words": torch.tensor([0, 1])}
    with pytest.raises(ValueError, match=f"{name} must be a tensor of integers, got <class 'list'>"):
        wildcard_ctc_loss(**{**given, name: [1, 2]}, input_lengths=7, target_lengths=2)


def test_posteriors_for_more_words_than_there_can_be_are_refused(backend):
    given = arguments(wildcards=WORDS, words=torch.tensor([[0, 0, 10**13], [0, 1, -1], [0, -1, -1]]))
    assert wildcard_ctc_loss(**given, backend=backend).isfinite()
    with pytest.raises(ValueError, match=r"words go up to 10000000000000; number them 0, 1, 2"):
        wildcard_posteriors(**given, backend=backend)


def test_symbols_must_name_each_output():
    with pytest.raises(ValueError, match="symbols must name each of the 5 outputs, got 3"):
        wildcard_align(**arguments(), symbols="-ab")


@pytest.mark.parametrize("case", CASES)
def test_refused_by_posteriors_and_alignment(case, backend):
    change, message = CASES[case]
    for function in (wildcard_posteriors, wildcard_align):
        with pytest.raises(ValueError, match=message):
            function(**arguments(**change), backend=backend)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("family", ["bypass", "self_loop", "word_bypass"])
def test_a_number_that_is_no_weight(family, value):
    with pytest.raises(ValueError, match=f"{family} is {value}, must be a number or -inf"):
        Wildcards(**{family: value})


def test_unknown_options():
    with pytest.raises(ValueError, match=r"reduction must be .* got 'average'"):
        wildcard_ctc_loss(**arguments(), reduction="average")
    with pytest.raises(ValueError, match=r"backend must be .* got 'cuda'"):
        wildcard_ctc_loss(**arguments(), backend="cuda")
    with pytest.raises(ValueError, match='self_loop_at must be "token", "word" or "end", got \'ends\''):
        Wildcards(self_loop_at="ends")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_lengths": [3, 2, -5]}, r"utterance 2: target_length is -5"),
        ({"input_lengths": [7, -1, 5]}, r"utterance 1: input_length is -1"),
        ({"target_lengths": [3, 2]}, r"target_lengths must hold one length"),
        ({"target_lengths": [3, 4, 1]}, r"utterance 1: target_length is 4, must be between 0 and S = 3"),
        ({"words": None, "wildcards": WORDS}, "need words"),
        ({"input_lengths": [7.5, 6.0, 5.0]}, "input_lengths must be integers, got torch.float32"),
        ({"target_lengths": torch.tensor([3.0, 2.0, 1.0])}, "target_lengths must be integers, got torch.float32"),
        ({"targets": torch.ones(9, dtype=torch.int64), "words": None}, "add up to 6, but there are 9 concatenated"),
        ({"targets": [[1, 2, 3]] * 3}, "targets must be a tensor of integers"),
    ],
)
def test_refused_by_infeasible(change, message):
    given = {k: v for k, v in arguments(**change).items() if k not in ("logits", "blank")}
    with pytest.raises(ValueError, match=message):
        infeasible(**given)


def test_padding_is_not_bad_input(backend):
    targets = torch.tensor([[1, 2, 3], [4, 4, -100], [2, 99, HUGE]])
    words = torch.tensor([[0, 0, 1], [0, 1, -100], [0, 0, 0]])
    tables = {"bypass": torch.zeros(3, 3), "self_loop": torch.zeros(3, 4), "word_bypass": torch.zeros(3, 2)}
    tables["bypass"][1, 2] = math.nan
    tables["self_loop"][1, 3] = math.inf
    tables["word_bypass"][2, 1] = math.nan
    found = wildcard_ctc_loss(
        **arguments(targets=targets, words=words, wildcards=Wildcards(**tables)), reduction="none", backend=backend
    )
    assert found.isfinite().all()


def test_where_values_are_not_checked_a_bad_label_is_nan_for_its_utterance_alone():
    """What happens on a GPU, where looking would make the host wait."""
    for label in (-1, 0, 5, HUGE):
        given = arguments(**changed("targets", (1, 0), label))
        good = reference.log_likelihood(as_lattice(**arguments()))
        found = reference.log_likelihood(as_lattice(**given))
        assert found.isnan().tolist() == [False, True, False]
        assert torch.equal(found[::2], good[::2])


NASTY = """
import sys, torch
from wildctc import Wildcards, wildcard_ctc_loss
cases = {
    "labels": dict(targets=torch.full((2, 3), 2**62)),
    "lengths": dict(target_lengths=[2**62, -(2**62)]),
    "frames": dict(input_lengths=[2**62, 2**31]),
    "words": dict(words=torch.full((2, 3), 2**62), wildcards=Wildcards(word_bypass=torch.zeros(2, 1))),
    "blank": dict(blank=2**40),
}
good = dict(logits=torch.zeros(5, 2, 4), targets=torch.ones(2, 3).long(), input_lengths=[5, 5], target_lengths=[3, 3])
for name, change in cases.items():
    try:
        wildcard_ctc_loss(**{**good, **change}, backend="native")
    except ValueError as error:
        print(name, "refused")
"""


def test_the_worst_ends_in_an_error_and_not_in_a_crash():
    done = subprocess.run([sys.executable, "-c", NASTY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [f"{n} refused" for n in ("labels", "lengths", "frames", "words", "blank")]


def test_a_criterion_in_the_place_of_blank_is_told_where_it_belongs():
    with pytest.raises(ValueError, match="wildcards='otc-tw-h'"):
        WildcardCTCLoss("otc-tw-h")


@pytest.mark.parametrize("weight", ["x", [0.0, -1.0], np.zeros((2, 3)), 1j, {}])
def test_a_weight_must_be_a_number(weight):
    with pytest.raises(ValueError, match=r"bypass is a \w+, must be a number or a tensor"):
        Wildcards(bypass=weight)


def test_a_number_of_numpy_is_a_weight():
    assert Wildcards(bypass=np.float32(-2.0), self_loop=np.int64(-1)).bypass == -2.0


@pytest.mark.parametrize("wildcards", [CRITERIA["otc-t"], -5.0, {}, {"bypass": -5.0}, Criterion])
def test_the_module_refuses_what_it_would_take_for_plain_ctc(wildcards):
    with pytest.raises(TypeError, match="wildcards must be None, Wildcards, NoiseRates, a Criterion or"):
        WildcardCTCLoss(wildcards=wildcards)


def test_the_module_refuses_an_unknown_reduction_when_it_is_made():
    with pytest.raises(ValueError, match=r"reduction must be .* got 'average'"):
        WildcardCTCLoss(reduction="average")
