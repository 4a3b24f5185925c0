"""`wildctc reproduce`: a grid of runs skips what is done, goes on, can be spread, and ends in a table."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.reproducing import SHORT, TINY, install, reproduce, speech
from support.tones import write_rows

from wildctc.criteria import CRITERIA
from wildctc.errors import Diverged, WildCTCError
from wildctc.experiments import subprocesses as commands
from wildctc.experiments.catalogue import (
    EXPERIMENTS,
    IBAN_EPOCH_SCALE,
    IBAN_H_LATER,
    IBAN_H_LOW,
    SEVEN,
    find_experiment,
)
from wildctc.experiments.grid import select, shard
from wildctc.experiments.pipeline import enough
from wildctc.experiments.results import RunResult
from wildctc.experiments.scheduler import collect_kept, keep
from wildctc.experiments.workspace import Site
from wildctc.files import only_one
from wildctc.training.config import differences, parse_yaml

SMALL = [*TINY, *SHORT]
TWO = ["--criteria", "ctc", "otc-t", "--seeds", "0"]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return speech(tmp_path_factory.mktemp("iban") / "speech")


# ---------------------------------------------------------------------------------------------------------------- grids


def folders(runs):
    return [str(run.folder) for run in runs]


def test_every_experiment_of_the_paper_is_declared():
    sizes = {name: len(experiment.runs) for name, experiment in EXPERIMENTS.items()}
    assert sizes == {
        "table2-librispeech": 7, "table2-fleurs": 14 * 7, "table2-respin": 9 * 7, "table2": 24 * 7,
        "table3-conformer": 7,
        "figure2-tau": 9, "figure2-kappa": 6, "retune-otc-w": 13, "table4-disagreement": 63,
        "iban": 48, "iban-corrupted": 24, "iban-length": 12, "iban-whisper": 12, "harper-valley": 44,
        "harper-valley-alternatives": 12, "harper-valley-baselines": 32,
    }  # fmt: skip
    for experiment in EXPERIMENTS.values():
        assert len(set(folders(experiment.runs))) == len(experiment.runs)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_of_a_grid_has_settings_that_training_takes(name, tmp_path):
    site = Site(find_experiment(name), tmp_path)
    configs = [site.config(run) for run in site.experiment.runs]
    known = set(CRITERIA) if name in ("iban", "harper-valley", "harper-valley-baselines") else set(SEVEN)
    assert {config.criterion for config in configs} <= known
    if not name.startswith(("iban", "harper-valley")):  # at a size for a CPU
        assert {config.training.epochs for config in configs} <= {30, 70}
        assert {config.training.epochs for config in configs if config.features.name == "fbank"} <= {70}
        for run, config in zip(site.experiment.runs, configs, strict=True):
            seconds = config.data.batch_seconds * config.optimizer.accumulate
            steps = run.task.hours * 3600 * len(config.data.speeds) * config.training.epochs / seconds
            assert steps > 1.25 * config.optimizer.warmup_steps  # the rate has its peak well within the run
            assert config.data.cache is None or not config.features.name.startswith("hf:")  # which would not fit


def test_iban_changes_a_schedule_for_its_whole_family_and_shows_the_published_one_beside_it(tmp_path):
    site = Site(find_experiment("iban"), tmp_path)
    found = {run.folder.parent.name: site.config(run).schedule for run in site.experiment.runs}
    for name in ("otc-w", "otc-w-tuned", "otc-t", "otc-tw"):
        assert (found[name].epoch_scale, found[name].h_low) == (IBAN_EPOCH_SCALE, None)
    for name in ("otc-t-h", "otc-tw-h"):
        assert (found[name].epoch_scale, found[name].h_low) == (None, IBAN_H_LOW)
    assert found["otc-tw-h-later"].h_low == IBAN_H_LATER
    for name in ("ctc", "otc-t-published", "otc-tw-published", "otc-tw-h-published"):
        assert set(vars(found[name]).values()) == {None}


def test_experiments_share_runs_that_are_the_same():
    def of(name):
        return set(folders(find_experiment(name).runs))

    assert of("table4-disagreement") == of("table2-respin")
    assert of("iban-length") & of("iban") == {
        f"iban/{c}/seed{k}" for c in ("ctc", "otc-tw", "otc-tw-h") for k in (0, 1)
    }
    assert not of("table2-librispeech") & of("table3-conformer")
    assert of("figure2-tau") & of("retune-otc-w") == {"librispeech-10h/ctc/seed0"}


def test_a_longer_run_has_a_trunk_of_its_own_length(tmp_path):
    site = Site(find_experiment("iban-length"), tmp_path)
    trunks = {str(run.folder): site.trunk(run) for run in site.experiment.runs}
    assert trunks["iban/otc-tw-epochs14/seed1"] == tmp_path / "runs/iban/ctc-epochs14/seed1"
    assert trunks["iban/otc-tw/seed1"] == tmp_path / "runs/iban/ctc/seed1"
    assert trunks["iban/ctc/seed1"] is None


def test_one_run_is_chosen_by_its_name():
    runs = find_experiment("iban").runs
    assert folders(select(runs, names=["iban/otc-tw/seed1"])) == ["iban/otc-tw/seed1"]
    assert len(select(runs, names=["iban/otc-tw*/seed0"])) == 6  # otc-tw, otc-tw-h with all their schedules, otc-tw-em
    assert folders(select(runs, seeds=[7], names=["iban/ctc/*"])) == ["iban/ctc/seed7"]
    with pytest.raises(WildCTCError, match=r"--runs: no run is called 'otc-tw'; their names are as iban/ctc/seed0"):
        select(runs, names=["otc-tw"])


def test_models_that_are_compared_with_each_other_stay_on_one_machine():
    experiment = find_experiment("table4-disagreement")
    parts = [experiment.shard(experiment.runs, f"{i}/4") for i in (1, 2, 3, 4)]
    tasks = [{run.task.name for run in part} for part in parts]
    assert sorted(map(len, tasks)) == [2, 2, 2, 3]
    assert sum(map(len, parts)) == len(experiment.runs)


def test_shards_are_parts_of_the_whole():
    runs = find_experiment("iban").runs
    parts = [shard(runs, f"{i}/4") for i in (1, 2, 3, 4)]
    assert sorted(folders(run for part in parts for run in part)) == sorted(folders(runs))
    for wrong in ("0/2", "3/2", "2", "a/b", "-1/2"):
        with pytest.raises(WildCTCError, match="expected i/n"):
            shard(runs, wrong)


def test_tasks_criteria_and_seeds_choose_runs():
    runs = select(find_experiment("table2-fleurs").runs, ["hi_in"], ["ctc", "otc-t"], [3, 4])
    assert folders(runs) == [f"hi_in/{c}/seed{k}" for c in ("ctc", "otc-t") for k in (3, 4)]
    with pytest.raises(WildCTCError, match="--tasks: no 'hi' in this experiment; there are: ar_eg"):
        select(find_experiment("table2-fleurs").runs, ["hi"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel2", "--out", "x"], "no experiment 'tabel2'; there are: table2-librispeech"),
        (["iban", "--data", "."], "--out DIR is needed"),
        (["iban", "--out", "x"], "--data DIR is needed"),
        (["iban", "--out", "x", "--data", "nowhere"], "--data nowhere: no such folder"),
        (["iban", "--out", "x", "--data", ".", "--encodr.blocks", "2"], "did you mean 'encoder.blocks'?"),
        (["iban", "--out", "x", "--data", ".", "--jobs", "0"], "--jobs must be at least 1"),
        (["iban", "--out", "x", "--from", "nowhere"], "--from nowhere: no such folder"),
        (["iban", "--out", "x", "--dry-run", "--rate", "0"], "--rate must be greater than 0"),
        (["table4-disagreement", "--out", "x", "--data", "."], "--validators DIR is needed"),
        (["table2", "--out", "x", "--data", "."], "run each with --keep DIR, then this with --from DIR"),
        (["iban", "--out", "x", "--from", "."], "no result of iban is there; the first would be iban/ctc/seed0.json"),
        (["iban", "--out", "x", "--from", ".", "--encoder.blocks", "2"], "--from takes the settings that the results"),
        (["iban", "--out", "x", "--data", ".", "--keep", "file"], "file"),
        # a row would be called what it is not
        (["iban", "--out", "x", "--data", ".", "--seed", "3"], "seed of the run iban ctc seed0 is always 0"),
        (["iban", "--out", "x", "--data", ".", "--criterion", "otc-t"], "is always ctc; choose with --criteria"),
        (
            ["iban-length", "--out", "x", "--data", ".", "--training.epochs", "6"],
            "training.epochs of the run iban ctc-epochs14 seed0 is always 14",
        ),
        (["figure2-tau", "--out", "x", "--data", ".", "--schedule.bypass_tau", "0.9"], "is always 0.65"),
    ],
)
def test_a_mistake_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert reproduce(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


# ---------------------------------------------------------------------------------------------------------- the dry run


def test_a_dry_run_prints_every_run_its_size_and_the_time_and_touches_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    assert reproduce("table2-fleurs", "--out", out, "--dry-run", "--rate", 50, "--shard", "1/2", "--jobs", 2) == 0
    said = capsys.readouterr().out
    assert said.count("not begun") == 98
    [row] = [line.split() for line in said.splitlines() if line.startswith("hi_in otc-tw-h seed0")]
    assert row[3:7] == ["10.00", "3", "30", "900.0"]  # hours, speeds, epochs, hours of speech
    assert "50 hours of speech trained on in an hour: given" in said
    assert "all: 98 runs, 88,200.0 hours of speech to go: 1764:00 h, 882:00 h with 2 side by side" in said
    assert "shard 2/2: 49 runs, 44,100.0" in said
    assert not out.exists()
    assert reproduce("table2-fleurs", "--out", out, "--dry-run") == 0
    assert "scaled to this encoder; give your own with --rate" in capsys.readouterr().out


def test_epochs_that_no_run_beside_it_shares_are_counted(tmp_path, capsys):
    def epochs(*words):
        assert reproduce("iban", "--out", tmp_path, "--dry-run", *words) == 0
        [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("iban otc-tw seed1")]
        return int(row.split()[5])

    alone, shards = ["--runs", "iban/otc-tw/seed1"], ["--criteria", "ctc", "otc-tw", "--seeds", 1, "--shard"]
    assert (epochs(), epochs(*alone), epochs(*shards, "1/1"), epochs(*shards, "1/3")) == (5, 9, 5, 9)
    trunk = tmp_path / "runs/iban/ctc/seed1/checkpoints/trunk.safetensors"
    trunk.parent.mkdir(parents=True)
    trunk.touch()
    assert epochs(*alone) == 5


# ------------------------------------------------------------------------------------------------ what is kept of a run

COMMITTED = Path(__file__).parents[2] / "results/iban"


@pytest.mark.parametrize("name", ["iban", "iban-corrupted", "iban-length", "iban-whisper", "harper-valley"])
def test_every_committed_result_is_what_the_grid_would_run_again(name, tmp_path):
    site = Site(find_experiment(name), tmp_path)
    folder = COMMITTED.with_name(name) if name in ("iban-whisper", "harper-valley") else COMMITTED
    results, _ = collect_kept(site, site.experiment.runs, folder)
    assert results
    for run in site.experiment.runs:
        path = folder / f"{run.folder}.json"
        if path.exists():
            config = parse_yaml(json.dumps(RunResult.load(path).config), str(path))
            assert differences(config, site.config(run)) == []


def test_a_result_in_the_place_of_another_is_refused(tmp_path, capsys):
    (tmp_path / "kept/iban/otc-t").mkdir(parents=True)
    shutil.copy(COMMITTED / "iban/otc-tw/seed1.json", tmp_path / "kept/iban/otc-t/seed0.json")
    assert reproduce("iban", "--from", tmp_path / "kept", "--out", tmp_path / "out") == 2
    assert "seed0.json is not the result of iban otc-t seed0: criterion is otc-tw in it" in capsys.readouterr().err


def test_what_another_experiment_found_with_a_run_stays_in_the_kept_result(tmp_path):
    site = Site(find_experiment("iban"), tmp_path / "out")
    [run] = select(site.experiment.runs, names=["iban/ctc/seed0"])
    shutil.copytree(COMMITTED / "iban/ctc", tmp_path / "kept/iban/ctc")
    found = RunResult.load(COMMITTED / "iban/ctc/seed0.json")
    replace(found, audit={"disagreement": {}}).save(tmp_path / "kept/iban/ctc/seed0.json")
    found.save(site.folder(run) / "result.json")
    keep(site, [run], tmp_path / "kept")
    assert RunResult.load(tmp_path / "kept/iban/ctc/seed0.json").audit == found.audit | {"disagreement": {}}


# -------------------------------------------------------------------------------------------------------------- running


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """Two criteria from one seed."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        assert reproduce("iban", "--data", corpus, "--out", out, *TWO, "--keep", out / "kept", *SMALL) == 0
    return out


def result(out, name):
    return RunResult.load(Path(out) / "runs" / name / "result.json")


def same(a: RunResult, b: RunResult) -> bool:
    return a.metrics[-1]["train_loss"] == b.metrics[-1]["train_loss"] and all(
        (a.tests[name].words == b.tests[name].words).all() for name in a.tests
    )


@pytest.mark.slow
def test_a_run_ends_in_its_result_and_an_experiment_in_its_table(whole):
    found = result(whole, "iban/otc-t/seed0")
    assert (found.experiment, found.task, found.criterion, found.seed, found.setting) == (
        "iban",
        "iban",
        "otc-t",
        0,
        {},
    )
    assert len(found.tests["test"].ids) == 12
    assert set(found.tests["test"].speakers) == {"tone"}
    assert [m["bypass"] for m in found.metrics] == [None, -25, pytest.approx(-25 * 0.775**6)]
    assert found.audit["wrong"] > 0
    assert 0 <= found.audit["auc"][1] <= found.audit["auc"][0] <= 1
    assert result(whole, "iban/otc-t-published/seed0").setting == {"schedule": "published"}
    assert "otc-t (schedule published)" in (whole / "iban.md").read_text()


@pytest.mark.slow
def test_the_epochs_of_plain_ctc_are_trained_once(whole):
    said = (whole / "runs/iban/otc-t/seed0/reproduce.txt").read_text()
    assert f"branched off from {whole}/runs/iban/ctc/seed0 after 1 epochs of plain CTC" in said


@pytest.mark.slow
def test_a_result_holds_no_place_on_a_disk_and_repeats_the_run(whole, corpus, tmp_path, monkeypatch):
    install(monkeypatch)
    text = (whole / "kept/iban/otc-t/seed0.json").read_text()
    assert str(whole) not in text
    assert str(corpus) not in text
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(json.loads(text)["config"]))
    from wildctc.cli import main

    words = ["train", str(recipe), "--out", str(tmp_path / "run"), "--data.dir", str(whole / "data/iban")]
    assert main([*words, "--data.cache", str(whole / "features")]) == 0
    again = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert again["train_loss"] == result(whole, "iban/otc-t/seed0").metrics[-1]["train_loss"]


@pytest.mark.slow
def test_what_is_done_is_not_done_again(whole, corpus, monkeypatch, capsys):
    runs = install(monkeypatch)
    assert reproduce("iban", "--data", corpus, "--out", whole, *TWO, *SMALL) == 0
    assert runs.done == []
    assert "3 of 3 runs are done" in capsys.readouterr().out
    (whole / "runs/iban/ctc/seed0/result.json").unlink()  # scoring alone is missing
    assert reproduce("iban", "--data", corpus, "--out", whole, *TWO, *SMALL) == 0
    assert runs.done == []
    assert result(whole, "iban/ctc/seed0").tests["test"].wer.reference > 0


@pytest.mark.slow
def test_tables_are_written_again_from_the_kept_results_alone(whole, tmp_path, capsys):
    assert reproduce("iban", "--from", whole / "kept", "--out", tmp_path / "again", *TWO) == 0
    assert (tmp_path / "again/iban.md").read_text() == (whole / "iban.md").read_text()
    assert reproduce("iban", "--from", whole / "kept", "--out", tmp_path / "more", "--seeds", 0, 1) == 0
    declared = len(select(find_experiment("iban").runs, seeds=[0, 1]))
    assert f"Not complete: {declared - 3} of {declared} runs are missing" in capsys.readouterr().out


@pytest.mark.slow
def test_shards_on_two_machines_give_what_one_machine_gives(whole, corpus, tmp_path, monkeypatch):
    runs = install(monkeypatch)
    for i in (1, 2):  # no disk is shared, so that the second machine has no trunk
        words = ["--shard", f"{i}/2", "--keep", tmp_path / "kept", *SMALL]
        assert reproduce("iban", "--data", corpus, "--out", tmp_path / f"machine{i}", *TWO, *words) == 0
    assert not any("--trunk" in words for words in runs.of("train") if "otc-t/seed0" in " ".join(words))
    for name in ("ctc", "otc-t", "otc-t-published"):
        assert same(RunResult.load(tmp_path / f"kept/iban/{name}/seed0.json"), result(whole, f"iban/{name}/seed0"))
    assert reproduce("iban", "--from", tmp_path / "kept", "--out", tmp_path / "both", *TWO) == 0


@pytest.mark.slow
def test_a_run_with_other_settings_is_not_taken_for_this_one(whole, corpus, capsys):
    assert reproduce("iban", "--data", corpus, "--out", whole, *TWO, *SMALL, "--encoder.blocks", 2) == 2
    said = capsys.readouterr()
    assert "holds a run with other settings (encoder.blocks: 1 there, 2 here): choose another --out" in said.out
    assert "3 of 3 runs failed" in said.err


@pytest.mark.slow
def test_a_run_that_another_process_has_is_left_out_and_said(corpus, tmp_path, monkeypatch, capsys):
    runs = install(monkeypatch)
    folder = tmp_path / "runs/iban/ctc/seed0"
    folder.mkdir(parents=True)
    hold = (
        f"from wildctc.files import only_one\nfrom pathlib import Path\nwith only_one(Path({str(folder)!r}, '.lock')):"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{hold}\n print(flush=True)\n input()"], stdin=-1, stdout=-1
    ) as other:
        other.stdout.readline()
        words = ["--criteria", "ctc", "--seeds", 0, *SMALL]
        assert reproduce("iban", "--data", corpus, "--out", tmp_path, *words) == 2
        other.communicate(b"\n")
    assert runs.done == []
    said = capsys.readouterr()
    assert "iban ctc seed0: skipped, " in said.out
    assert "1 of 1 runs are not done (iban ctc seed0: not begun); the same command resumes" in said.err
    with only_one(folder / ".lock"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_experiment_goes_on(whole, corpus, tmp_path, by):
    """In real processes: killed while training, none of them goes on; the same command gives the same result."""
    shutil.copytree(whole / "data", tmp_path / "data")
    words = [sys.executable, "-m", "wildctc", "reproduce", "iban", "--data", str(corpus), "--out", str(tmp_path)]
    words += ["--criteria", "ctc", "--seeds", "0", *SMALL, "--training.checkpoint_steps", "1"]
    log = tmp_path / "runs/iban/ctc/seed0/reproduce.txt"
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        checkpoint = tmp_path / "runs/iban/ctc/seed0/checkpoints/last.safetensors"
        for _ in range(1200):
            if checkpoint.exists():
                break
            time.sleep(0.1)
        process.send_signal(by)
        said, error = process.communicate(timeout=60)
    if by == signal.SIGTERM:
        assert process.returncode == 130, error
        assert "Not complete: 1 of 1 runs are missing" in said
    time.sleep(0.5 if by == signal.SIGKILL else 0)  # the system's to end it
    with only_one(log.parent / ".lock"):  # the training has ended too
        pass
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "resuming from" in log.read_text()
    assert same(result(tmp_path, "iban/ctc/seed0"), result(whole, "iban/ctc/seed0"))


@pytest.mark.slow
def test_an_experiment_whose_command_somebody_stopped_is_not_a_success(whole, corpus, tmp_path, monkeypatch, capsys):
    def stop(words):
        if words[0] == "train":
            raise commands.Stopped

    install(monkeypatch, stop)
    words = ["--criteria", "ctc", "--seeds", 0, *SMALL]
    assert reproduce("iban", "--data", corpus, "--out", tmp_path, *words) == 2
    assert "1 of 1 runs are not done (iban ctc seed0: not begun)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_failure_is_named_and_does_not_stop_the_others(corpus, tmp_path, monkeypatch, capsys):
    def fail(words):
        if words[0] == "train" and "ctc" in words:
            raise WildCTCError("the disk is full")

    install(monkeypatch, fail)
    assert reproduce("iban", "--data", corpus, "--out", tmp_path, *TWO, *SMALL) == 2
    said = capsys.readouterr()
    assert "iban ctc seed0: FAILED: the disk is full" in said.out
    assert "Not complete: 1 of 3 runs are missing (iban ctc seed0: the disk is full)" in said.out
    assert "1 of 3 runs failed; the same command tries them again" in said.err
    assert result(tmp_path, "iban/otc-t/seed0").tests


# ----------------------------------------------------------------------------------------------------------- the † rule


def diverges(until: float):
    """Training of otc-w diverges unless its word bypass is at most so much."""

    def before(words):
        if words[0] == "train" and "otc-w" in words:
            given = words[words.index("--schedule.word_bypass") + 1] if "--schedule.word_bypass" in words else -19
            out = Path(words[words.index("--out") + 1])
            if float(given) > until:
                out.mkdir(parents=True, exist_ok=True)
                (out / "config.yaml").write_text("criterion: otc-w\n")
                raise Diverged(f"training has diverged at {given}")

    return before


@pytest.mark.slow
@pytest.mark.parametrize(("until", "dagger", "trainings"), [(-25.0, -25.0, 2), (-30.0, -30.0, 3)])
def test_otc_w_that_diverges_gets_the_first_word_bypass_that_holds(
    until, dagger, trainings, corpus, tmp_path, monkeypatch
):
    runs = install(monkeypatch, diverges(until))
    monkeypatch.setattr(Site, "check_settings", lambda self, run: None)
    words = ["--data", corpus, "--out", tmp_path, "--criteria", "otc-w", "--seeds", 0, *SMALL]
    assert reproduce("iban", *words) == 0
    found = result(tmp_path, "iban/otc-w/seed0")
    assert (found.dagger, found.diverged, found.config["schedule"]["word_bypass"]) == (dagger, None, dagger)
    assert found.tests["test"].wer.reference > 0
    assert len(runs.of("train")) == trainings
    (tmp_path / "runs/iban/otc-w/seed0/result.json").unlink()
    assert reproduce("iban", *words) == 0
    assert len(runs.of("train")) == trainings  # what diverged once is not trained again


@pytest.mark.slow
def test_a_run_that_never_holds_is_recorded_and_shown(corpus, tmp_path, capsys, monkeypatch):
    """Really: the loss of the first step after a rate without bounds is not finite."""
    runs = install(monkeypatch)
    words = ["--data", corpus, "--out", tmp_path, "--seeds", 0, *SMALL, "--optimizer.lr", "1e30"]
    assert reproduce("iban", "--criteria", "otc-w", *words) == 0
    found = result(tmp_path, "iban/otc-w/seed0")
    assert found.diverged.startswith("training has diverged")
    assert (found.dagger, found.tests, len(runs.of("train"))) == (-30.0, {}, 3)
    assert "diverged" in capsys.readouterr().out
    assert reproduce("iban", "--runs", "iban/otc-w-tuned/seed0", *words) == 0
    assert len(runs.of("train")) == 4  # the rule is for OTC-W alone
    assert result(tmp_path, "iban/otc-w-tuned/seed0").dagger is None


# ---------------------------------------------------------------------------------------------- other experiments, GPUs


@pytest.mark.slow
def test_corrupted_transcripts_are_those_of_training_and_validation(corpus, tmp_path, monkeypatch):
    runs = install(monkeypatch)
    words = ["--data", corpus, "--out", tmp_path, "--criteria", "ctc", "--seeds", 0, *SMALL]
    assert reproduce("iban-corrupted", *words) == 0
    assert len(runs.of("corrupt")) == 5  # two splits of two kinds, and the audit
    clean, wrong = (runs_of(tmp_path / "data" / name / "train.jsonl.gz") for name in ("iban", "iban+words"))
    assert set(clean) == set(wrong)
    assert 0 < sum(clean[id] != wrong[id] for id in clean) < len(clean)
    found = {task: result(tmp_path, f"{task}/ctc/seed0") for task in ("iban+characters", "iban+words")}
    assert found["iban+words"].tests["test"].wer.reference == found["iban+characters"].tests["test"].wer.reference
    assert "iban+words" in (tmp_path / "iban-corrupted.md").read_text()


def runs_of(manifest):
    from wildctc.corpora.manifest import load_manifest

    return {u.id: u.text for u in load_manifest(manifest)}


@pytest.mark.slow
def test_two_lengths_are_compared_and_the_shorter_one_is_shared(whole, corpus, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    runs = install(monkeypatch)
    long = ["--data", corpus, "--out", tmp_path, "--criteria", "ctc", "--seeds", 0, *TINY]
    monkeypatch.setattr(Site, "check_settings", lambda self, run: None)  # 3 epochs there, 9 declared
    assert reproduce("iban-length", *long, "--training.ctc_epochs", 1) == 0
    assert [words[words.index("--training.epochs") + 1] for words in runs.of("train")] == ["14"]
    assert "14 epochs" in (tmp_path / "iban-length.md").read_text()


def test_a_test_set_that_could_not_be_decoded_gives_no_result(tmp_path):
    rows = [{"id": f"u{i}", "text": "a", "reference": "a"} for i in range(99)] + [
        {"id": "bad", "left_out": "empty file"}
    ]
    write_rows(tmp_path / "hyp.jsonl", rows)
    assert len(enough(tmp_path / "hyp.jsonl")) == 99
    write_rows(tmp_path / "hyp.jsonl", rows[1:])
    with pytest.raises(WildCTCError, match="1 utterances could not be decoded; remove it"):
        enough(tmp_path / "hyp.jsonl")


def test_each_run_has_a_gpu_of_its_own_or_one_thread(monkeypatch):
    assert commands.environments(2) == [{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}] * 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [e["CUDA_VISIBLE_DEVICES"] for e in commands.environments(3)] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [e["CUDA_VISIBLE_DEVICES"] for e in commands.environments(2)] == ["3", "5"]


@pytest.mark.parametrize(
    ("ends", "error", "message"),
    [
        ("kill -9 $$", WildCTCError, "killed by signal 9"),
        ("echo 'wildctc: no such file'; exit 2", WildCTCError, "no such file"),
        ("echo 'wildctc: training has diverged'; exit 3", Diverged, "training has diverged$"),
        ("exit 130", commands.Stopped, "^$"),
    ],
)
def test_how_a_command_ended_is_told(ends, error, message, tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{ends}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(error, match=message):
        commands.Commands(1).run(["train"], tmp_path / "log.txt", {})
