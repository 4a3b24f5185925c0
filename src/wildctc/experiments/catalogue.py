"""The experiments: the paper's, and ours on Iban at a size for a CPU. Settings: docs/specification.md.

Criteria and the † rule: specification §6. Tasks and grids: specification §8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wildctc.corpora.respin import LANGUAGES
from wildctc.criteria import CRITERIA
from wildctc.errors import WildCTCError
from wildctc.experiments.grid import Run, Setting, Step, Task, Value, shard
from wildctc.experiments.systems import PAPER_NAMES

SEVEN = tuple(PAPER_NAMES)
DAGGER = (-25.0, -30.0)  # word bypass of an OTC-W run that diverged: the first that holds


@dataclass(frozen=True)
class Experiment:
    """A declared set of runs.

    Attributes:
        name: What `wildctc reproduce` calls it.
        about: One line about it.
        runs: Its runs.
        audit: A manifest in OUT/data with known errors, in which each model looks for them; None for none.
        disagreement: Whether models are compared where validators disagree.
        only_kept: Whether it has no runs of its own, but makes a table from the kept results of others.
    """

    name: str
    about: str
    runs: tuple[Run, ...]
    audit: str | None = None
    disagreement: bool = False
    only_kept: bool = False

    def shard(self, runs: Sequence[Run], text: str) -> list[Run]:
        """Choose the runs of one of several machines.

        Args:
            runs: All runs.
            text: "i/n": the i-th of n machines.

        Returns:
            Its runs. If models of a task are compared with each other, all runs of the task are on one machine.
        """
        return shard(runs, text, lambda run: run.task.name) if self.disagreement else shard(runs, text)


def grid(
    tasks: Iterable[Task],
    criteria: Iterable[str],
    seeds: Sequence[int] = (0,),
    settings: Iterable[Setting] = (Setting(),),
) -> tuple[Run, ...]:
    """Combine tasks, criteria, settings and seeds.

    Args:
        tasks: What is trained on.
        criteria: The criteria.
        seeds: The seeds.
        settings: The settings, for every criterion alike.

    Returns:
        A run for each combination: by task, then criterion, setting and seed.
    """
    points = [(criterion, setting) for criterion in criteria for setting in settings]
    return tuple(Run(task, c, seed, setting) for task in tasks for c, setting in points for seed in seeds)


# ----------------------------------------------------------------------------------------------------- the paper's data

_LIBRISPEECH_SETS = ("dev-clean", "dev-other", "test-clean", "test-other")
# All layers of the frozen models would take 280 GB (a language of FLEURS) to 1.1 TB (LibriSpeech), so they are computed
# in each epoch, on the GPU if there is one, unless --data.cache says where there is room.
_FROZEN: dict[str, Value] = {"data.cache": "null", "data.workers": 0}


def _librispeech(name: str, recipe: str, folder: str = "") -> Task:
    words = ("prepare", "librispeech", "{corpus}", "{data}/librispeech", "--lower")
    step = Step("librispeech/rejected.jsonl", (*words, "--subsets", "train-clean-100", *_LIBRISPEECH_SETS))
    tests = {test: f"librispeech/{test}.jsonl.gz" for test in _LIBRISPEECH_SETS[2:]}
    return Task(name, recipe, "librispeech", (step,), tests, 100.6, folder, _FROZEN)


def _librispeech_10h() -> Task:
    """10 random hours, the same for everybody. The reported WER is that of both validation sets, pooled.

    A step is one batch of 120 s, as for FLEURS: with the 480 s of 100 h a run would end within the warm-up.
    """
    name = "librispeech-10h"
    words = ("prepare", "librispeech", "{corpus}", "{data}/" + name, "--lower", "--hours", "10")
    step = Step(f"{name}/rejected.jsonl", (*words, "--subsets", "train-clean-100", *_LIBRISPEECH_SETS[:2]))
    tests = {"dev-clean+dev-other": f"{name}/dev.jsonl.gz"}
    return Task(name, "librispeech", name, (step,), tests, 10.0, train=_FROZEN | {"optimizer.accumulate": 1})


def _fleurs(language: str) -> Task:
    folder = f"fleurs/{language}"
    words = ("prepare", "fleurs", "{corpus}", "{data}/" + folder, "--language", language)
    step = Step(f"{folder}/rejected.jsonl", words)
    return Task(language, "fleurs", folder, (step,), {"test": f"{folder}/test.jsonl.gz"}, 10.0, train=_FROZEN)


def _respin(language: str) -> Task:
    folder = f"respin/{language}"
    words = ("prepare", "respin", "{corpus}", "{data}/" + folder, "--language", language)
    step = Step(f"{folder}/rejected.jsonl", (*words, "--strip-punctuation", "--unique-sentences", "--hours", "30"))
    return Task(language, "respin", folder, (step,), {"test": f"{folder}/test.jsonl.gz"}, 30.0)


FLEURS = (
    "ar_eg", "hy_am", "bn_in", "en_us", "ka_ge", "el_gr", "gu_in", "hi_in", "kn_in", "ml_in", "pa_in", "ru_ru", "ta_in",
    "te_in",
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------- the paper's grids

TAUS = (0.65, 0.70, 0.75, 0.775, 0.80, 0.85, 0.90, 0.95)  # of both arcs
KAPPAS = (0.7, 1.0, 1.3, 1.6, 2.0)
# The paper does not say what it tried for OTC-W'. Ours: what it published and what it chose are among them.
WORD_TAUS = (0.90, 0.925, 0.95, 0.975)
SELF_LOOPS = ((3.75, 0.999), (-1.0, 0.975), (-5.0, 0.975))


def _tau(value: float) -> Setting:
    return Setting(f"tau{value:g}", {"τ": value}, {"schedule.bypass_tau": value, "schedule.self_loop_tau": value})


def _kappa(value: float) -> Setting:
    return Setting(f"kappa{value:g}", {"κ": value}, {"schedule.kappa": value})


def _retuned(word_tau: float, self_loop: float, self_tau: float) -> Setting:
    train = {"word_bypass_tau": word_tau, "self_loop": self_loop, "self_loop_tau": self_tau}
    return Setting(
        f"word{word_tau:g}-self{self_loop:g}",
        {"word bypass τ": word_tau, "self-loop": self_loop},
        {f"schedule.{name}": value for name, value in train.items()},
    )


_RETUNED = [_retuned(word_tau, *self_loop) for word_tau in WORD_TAUS for self_loop in SELF_LOOPS]

# ----------------------------------------------------------------------------------------------------------------- Iban

IBAN_EPOCH_SCALE = 6.0  # 30 / (9 epochs − 4 of plain CTC): the published schedule in the epochs that there are
IBAN_H_LOW = 0.21  # of all entropy criteria: the smoothed dev entropy of plain CTC (seed 0) at its end, docs/results.md
IBAN_H_LATER = 0.105  # half of it, thought of after its results were seen
_IBAN_AUDIT = "iban/test-audit.jsonl"
_IBAN_STEPS = (
    Step("iban/rejected.jsonl", ("prepare", "jsonl", "{corpus}", "{data}/iban", "--hours", "3.2")),
    # the seed of benchmarks/audit.py, so that the same characters are wrong
    Step(
        _IBAN_AUDIT,
        ("corrupt", "{data}/iban/test.jsonl.gz", "-o", "{data}/" + _IBAN_AUDIT, "--characters", "0.02", "--seed", "2"),
    ),
)


def _iban(name: str, data: str = "iban", steps: tuple[Step, ...] = (), recipe: str = "iban-compare") -> Task:
    return Task(name, recipe, data, _IBAN_STEPS + steps, {"test": "iban/test.jsonl.gz"}, 3.2)


def _iban_corrupted(kind: str, rate: str) -> Task:
    """Training and validation transcripts with errors; the test set as it is."""
    folder = f"iban+{kind}"
    steps = []
    for seed, split in enumerate(("train", "dev")):
        words = ("corrupt", "{data}/iban/" + f"{split}.jsonl.gz", "-o", "{data}/" + f"{folder}/{split}.jsonl.gz")
        steps.append(Step(f"{folder}/{split}.jsonl.gz", (*words, f"--{kind}", rate, "--seed", str(seed))))
    return _iban(folder, folder, tuple(steps))


def _small(criterion: str, name: str = "", shown: Mapping[str, Value] | None = None, **train: Value) -> Setting:
    """A criterion's schedule at the size of Iban (specification §8): one change for each family of schedules."""
    changed: dict[str, dict[str, Value]] = {
        "none": {},
        "epoch": {"schedule.epoch_scale": IBAN_EPOCH_SCALE},
        "entropy": {"schedule.h_low": IBAN_H_LOW},
        "rates": {"rates.by": "speaker"},
    }
    return Setting(name, shown or {}, changed[CRITERIA[criterion].schedule] | train)


def _iban_grid(tasks: Sequence[Task], criteria: Sequence[str], seeds: Sequence[int]) -> tuple[Run, ...]:
    return tuple(run for c in criteria for run in grid(tasks, [c], seeds, [_small(c)]))


def _iban_runs() -> tuple[Run, ...]:
    tasks, seeds = [_iban("iban")], range(5)
    published = Setting("published", {"schedule": "published"})
    # Two questions that came up when results were in: does `otc-tw-h` delete because it relaxes early, and is it the
    # token arcs that set `otc-tw` apart from `otc-w-tuned`, or its self-loops?
    later = Setting("later", {"h_low": IBAN_H_LATER}, {"schedule.h_low": IBAN_H_LATER})
    loops: dict[str, Value] = {"schedule.self_loop": -5.0, "schedule.self_loop_tau": 0.775}
    as_tw = _small("otc-w-tuned", "loops", {"self-loops": "of otc-tw"}, **loops)
    return (
        *_iban_grid(tasks, ("ctc", "otc-t", "otc-tw", "otc-tw-h"), seeds),
        *_iban_grid(tasks, ("otc-w", "otc-w-tuned", "otc-t-h"), seeds),
        *_iban_grid(tasks, ["otc-tw-em"], range(3)),
        *grid(tasks, ("otc-t", "otc-tw", "otc-tw-h"), (0, 1), [published]),
        *grid(tasks, ["otc-tw-h"], (0, 1), [later]),
        *grid(tasks, ["otc-w-tuned"], (0, 1), [as_tw]),
    )


def _iban_length_runs() -> tuple[Run, ...]:
    """The schedules of the experiment `iban`, once as there and once with twice as many epochs of the criterion."""
    runs: list[Run] = []
    for criterion in ("ctc", "otc-tw", "otc-tw-h"):
        short = _small(criterion, "", {"epochs": 9})
        long = _small(criterion, "epochs14", {"epochs": 14}, **{"training.epochs": 14})
        runs += grid([_iban("iban")], [criterion], (0, 1), [short, long])
    return tuple(runs)


LATE_EPOCH_SCALE = 5.0  # of recipes with 14 epochs, of which 8 are plain CTC: 30 / (14 − 8)


def _late_grid(tasks: Sequence[Task], points: Sequence[tuple[str, int]], h_low: float = 0.01) -> tuple[Run, ...]:
    """Criteria and seeds of a recipe whose wildcards begin after eight epochs: one change for each family."""
    changed: dict[str, dict[str, Value]] = {
        "none": {},
        "epoch": {"schedule.epoch_scale": LATE_EPOCH_SCALE},
        "entropy": {"schedule.h_low": h_low},
        "rates": {"rates.by": "speaker"},
    }
    return tuple(
        run
        for criterion, seed in points
        for run in grid(tasks, [criterion], [seed], [Setting(train=changed[CRITERIA[criterion].schedule])])
    )


def _iban_whisper_runs() -> tuple[Run, ...]:
    """The speech of `iban` with Whisper's features, at 50 frames a second, by the rules of Harper Valley."""
    tasks = [_iban("iban-whisper", recipe="iban-whisper")]
    points = [(criterion, seed) for seed in range(3) for criterion in ("ctc", "otc-tw", "otc-w-tuned", "otc-t")]
    return _late_grid(tasks, points)


_CORRUPTED = [_iban_corrupted("characters", "0.05"), _iban_corrupted("words", "0.15")]

# -------------------------------------------------------------------------------------------------------- Harper Valley

# Rules fixed before any result with wildcards: docs/harper-valley.md.
_HARPER_H_LOW = 0.0226  # half of 0.0453, the smoothed dev entropy of plain CTC on machine text (seed 0) at its end
_HARPER_CRITERIA = ("ctc", "otc-tw", "otc-w-tuned", "otc-t", "otc-tw-h", "otc-tw-em")
_HARPER_HOURS = 3.0


def _harper_valley(name: str, *text_fields: str) -> Task:
    """Train and dev with the text of a field, or of several; the test set always has what people wrote."""
    human = Step("harper-valley/rejected.jsonl", _harper_words("harper-valley", "text"))
    other = Step(f"{name}/rejected.jsonl", _harper_words(name, *text_fields))
    steps = (human,) if name == "harper-valley" else (human, other)
    return Task(name, "harper-valley", name, steps, {"test": "harper-valley/test.jsonl.gz"}, _HARPER_HOURS)


def _harper_words(folder: str, *text_fields: str) -> tuple[str, ...]:
    words = ("prepare", "jsonl", "{corpus}", "{data}/" + folder, "--hours", f"{_HARPER_HOURS:g}")
    return (*words, "--text-field", ",".join(text_fields), "--no-decode")


def _harper_alternatives_runs() -> tuple[Run, ...]:
    """Both texts of each utterance as alternatives, against each alone. Rules: docs/alternatives.md."""
    human, machine = _harper_valley("harper-valley", "text"), _harper_valley("harper-valley-machine", "machine")
    either = _harper_valley("harper-valley-either", "machine", "text")
    points = [(task, "ctc") for task in (human, machine, either)] + [(machine, "otc-tw")]
    return tuple(run for task, criterion in points for run in _late_grid([task], [(criterion, s) for s in range(3)]))


def _harper_valley_runs() -> tuple[Run, ...]:
    tasks = [_harper_valley("harper-valley-machine", "machine"), _harper_valley("harper-valley", "text")]
    points = [(criterion, seed) for seed in range(3) for criterion in _HARPER_CRITERIA]
    points += [(criterion, 1) for criterion in ("otc-w", "otc-t-h", "otc-w-em", "otc-t-em")]
    return _late_grid(tasks, points, _HARPER_H_LOW)


def _harper_baselines_runs() -> tuple[Run, ...]:
    """Wildcards beside what others do, alone and together. Rules: docs/baselines.md."""
    tasks = [_harper_valley("harper-valley-machine", "machine"), _harper_valley("harper-valley", "text")]
    scale: dict[str, Value] = {"schedule.epoch_scale": LATE_EPOCH_SCALE}
    consistent: dict[str, Value] = {"cr_ctc.weight": 0.2, "spec_augment.time_masks": 12}
    longer: dict[str, Value] = {"training.epochs": 28}
    points: list[tuple[str, Setting]] = [
        ("ctc", Setting()),
        ("otc-tw", Setting(train=scale)),
        ("ctc", Setting("cr-ctc", {"with": "CR-CTC"}, consistent)),
        ("otc-tw", Setting("cr-ctc", {"with": "CR-CTC"}, consistent | scale)),
    ]
    main = [run for seed in range(3) for criterion, s in points for run in grid(tasks, [criterion], [seed], [s])]
    others = [("w-ctc", Setting()), ("stc", Setting(train=scale))]
    return (
        *main,
        *(run for criterion, s in others for run in grid(tasks[:1], [criterion], [0], [s])),
        *grid(tasks, ["ctc"], range(3), [Setting("epochs28", {"epochs": 28}, longer)]),
    )


# ---------------------------------------------------------------------------------------------------------- all of them

_TABLE_2 = (
    Experiment(
        "table2-librispeech",
        "train-clean-100, E-Branchformer",
        grid([_librispeech("librispeech", "librispeech")], SEVEN),
    ),
    Experiment("table2-fleurs", "14 languages", grid(map(_fleurs, FLEURS), SEVEN)),
    Experiment("table2-respin", "9 languages, 30 h each", grid(map(_respin, LANGUAGES), SEVEN)),
)
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *_TABLE_2,
        Experiment(
            "table2",
            "the whole table, from results of the three above: run each with --keep DIR, then this with --from DIR",
            tuple(run for part in _TABLE_2 for run in part.runs),
            only_kept=True,
        ),
        Experiment(
            "table3-conformer",
            "train-clean-100, Conformer",
            grid([_librispeech("librispeech", "librispeech-conformer", "librispeech-conformer")], SEVEN),
        ),
        Experiment(
            "figure2-tau",
            "OTC-T on 10 h of LibriSpeech, by τ",
            grid([_librispeech_10h()], ["ctc"]) + grid([_librispeech_10h()], ["otc-t"], settings=map(_tau, TAUS)),
        ),
        Experiment(
            "figure2-kappa",
            "OTC-T with the entropy schedule on 10 h of LibriSpeech, by κ",
            grid([_librispeech_10h()], ["ctc"]) + grid([_librispeech_10h()], ["otc-t-h"], settings=map(_kappa, KAPPAS)),
        ),
        Experiment(
            "retune-otc-w",
            "OTC-W on 10 h of LibriSpeech: word bypass τ × self-loop (the grid is ours)",
            grid([_librispeech_10h()], ["ctc"]) + grid([_librispeech_10h()], ["otc-w-tuned"], settings=_RETUNED),
        ),
        Experiment(
            "table4-disagreement",
            "bypass probability where RESPIN's validators disagree, by the models of table2-respin",
            grid(map(_respin, LANGUAGES), SEVEN),
            disagreement=True,
        ),
        Experiment("iban", "the criteria on 3.2 h of Iban radio news", _iban_runs(), _IBAN_AUDIT),
        Experiment(
            "iban-corrupted",
            "the same with errors in the transcripts: 5% of characters, 15% of words",
            _iban_grid(_CORRUPTED, ("ctc", "otc-w-tuned", "otc-t", "otc-tw"), range(3)),
            _IBAN_AUDIT,
        ),
        Experiment("harper-valley", "3 h of phone calls, transcribed by people or by a machine", _harper_valley_runs()),
        Experiment(
            "harper-valley-alternatives",
            "the same calls with both texts as alternatives, against each alone",
            _harper_alternatives_runs(),
        ),
        Experiment(
            "harper-valley-baselines",
            "the same calls: wildcards, CR-CTC, both together, W-CTC and STC",
            _harper_baselines_runs(),
        ),
        Experiment(
            "iban-whisper", "the same speech with Whisper's features, converged", _iban_whisper_runs(), _IBAN_AUDIT
        ),
        Experiment(
            "iban-length", "5 or 10 epochs of a criterion, its schedule unchanged", _iban_length_runs(), _IBAN_AUDIT
        ),
    )
}


def find_experiment(name: str) -> Experiment:
    """Find an experiment by its name.

    Args:
        name: The name.

    Returns:
        The experiment.

    Raises:
        WildCTCError: There is none of this name.
    """
    if name not in EXPERIMENTS:
        raise WildCTCError(f"no experiment {name!r}; there are: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
