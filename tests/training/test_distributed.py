"""Several processes compute what one would, write once, and end together.

Most tests fork two processes here and give them torchrun's variables, which saves the seconds that starting takes. The
last ones run torchrun itself. Many wait for time limits, so all are slow.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows
from support.training_runs import assert_same_run, in_processes, last, load, messages, plain

from wildctc import distributed, peers
from wildctc.criteria import Criterion
from wildctc.distributed import ALONE, Processes, process_group
from wildctc.errors import WildCTCError
from wildctc.features.fbank import Fbank
from wildctc.logs import start_log
from wildctc.tensor_files import load_tensors
from wildctc.torchrun import SET_BY_TORCHRUN
from wildctc.training.batches import Batch, Batches, parts_for, parts_to_resume
from wildctc.training.divergence import DivergenceWatch
from wildctc.training.loop import Trainer, train

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


# ------------------------------------------------------------------------------------------------------- exchanging


def exchange():
    with process_group() as processes:
        everything = processes.sum([1.0, 0.1 * processes.rank]), processes.gather(processes.rank)
        return *everything, processes.tell("first" if processes.first else "other"), processes.share("abcde")


def test_processes_sum_gather_and_tell():
    first, second, third = in_processes(exchange, size=3)
    assert first == ([3.0, 0.1 + 0.2], [0, 1, 2], "first", "ad")
    assert second[:3] == third[:3] == first[:3]
    assert (second[3], third[3]) == ("be", "c")


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.setenv("RANK", "3")  # some other program's
    with process_group() as processes:
        assert processes == ALONE
        assert (processes.sum([1.5]), processes.gather("x"), processes.tell("x")) == ([1.5], ["x"], "x")
        processes.barrier()


def test_more_processes_than_gpus_are_refused(monkeypatch):
    for name in SET_BY_TORCHRUN:
        monkeypatch.setenv(name, "3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(WildCTCError, match=r"processes \(3\) than GPUs \(2\): .*--nproc-per-node 2"), process_group():
        pass


def fail_in(ranks, message="wrong"):
    with process_group() as processes:
        processes.barrier()
        if processes.rank in ranks:
            raise WildCTCError(message)
        processes.barrier()


@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1, 2)])
def test_mistake_in_any_process_ends_all_and_is_said_once(ranks):
    results = in_processes(fail_in, ranks, size=3)
    assert messages(results) == ["wrong"]
    assert all(isinstance(r, BaseException) for r in results)


def fail_while_another_is_busy():
    with process_group() as processes:
        processes.barrier()
        if processes.rank == 1:
            raise WildCTCError("wrong")
        if processes.rank == 2:
            time.sleep(2)  # meanwhile the first process, which keeps the store, hears of the mistake
        processes.barrier()


def test_a_busy_process_does_not_take_a_mistake_of_another_for_a_loss():
    assert messages(in_processes(fail_while_another_is_busy, size=3)) == ["wrong"]


def kill_second():
    with process_group() as processes:
        processes.barrier()
        if processes.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        processes.sum([1.0])


def test_killed_process_does_not_keep_the_others_waiting_and_is_named():
    [said] = messages(in_processes(kill_second, size=3, killed=[1]))
    assert re.fullmatch(
        r"process of rank 1 \(process id \d+ on .*\) of 3 was killed \(out of memory\?\); run the same command .*", said
    )


@pytest.fixture(autouse=True)
def fast_beats(monkeypatch):
    monkeypatch.setattr(peers, "BEAT", 0.2)


@pytest.fixture
def impatient(monkeypatch):
    """Two seconds without a beat are long."""
    monkeypatch.setattr(peers, "SILENCE", 2.0)
    monkeypatch.setattr(peers, "ARRIVAL", 5.0)
    start_log(None)


def stop_one(rank, wait):
    """wait: for the others in an exchange or at a barrier."""
    with process_group() as processes:
        processes.barrier()
        if processes.rank == rank:
            os.kill(os.getpid(), signal.SIGSTOP)
        processes.sum([1.0]) if wait == "exchange" else processes.barrier()


@pytest.mark.parametrize(("rank", "wait"), [(1, "exchange"), (2, "barrier")])
def test_stopped_process_is_named(impatient, capfd, rank, wait):
    ends = in_processes(stop_one, rank, wait, size=3, killed=[rank])
    assert all(isinstance(end, SystemExit) and end.code == 2 for end in ends if end is not None)
    [said] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("wildctc: ")]
    assert re.match(rf"wildctc: process of rank {rank} \(.*\) of 3 did not answer for 2 s \(stopped", said)


def test_stopped_keeper_of_the_store_is_named(impatient, capfd):
    in_processes(stop_one, 0, "exchange", size=3, killed=[0])
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("wildctc: ")]
    assert said
    assert all(re.match(r"wildctc: .*the process of rank 0 at 127.0.0.1:\d+ for 2 s", line) for line in said)


def test_missing_process_is_named(impatient, capfd):
    ends = in_processes(exchange, size=3, absent=[1])
    assert "wildctc: waiting for process of rank 1 of 3\n" in capfd.readouterr().err
    assert [re.sub(r"\d s", "n s", said) for said in messages(ends)] == [
        "process of rank 1 of 3 did not start within n s: are all started?"
    ]


def test_missing_first_process_is_named(impatient, capfd):
    ends = in_processes(exchange, size=2, absent=[0])
    assert "wildctc: waiting for the process of rank 0 at 127.0.0.1:" in capfd.readouterr().err
    [said] = messages(ends)
    assert re.match(r"no answer from the process of rank 0 at 127.0.0.1:\d+ within \d s: is it started\?", said)


def work_alone(seconds, barrier):
    with process_group() as processes:
        if processes.first:
            time.sleep(seconds)
        if barrier:
            processes.barrier()
        return processes.tell("done")


def test_long_work_of_one_process_is_waited_for_at_a_barrier(impatient, monkeypatch):
    monkeypatch.setattr(distributed, "EXCHANGE_TIMEOUT", timedelta(seconds=1))
    assert in_processes(work_alone, 4, True, size=2) == ["done", "done"]


def test_process_that_lives_but_does_not_come_is_named_by_the_time_limit_of_an_exchange(impatient, monkeypatch):
    monkeypatch.setattr(distributed, "EXCHANGE_TIMEOUT", timedelta(seconds=1))
    [said] = messages(in_processes(work_alone, 60, False, size=3, killed=[0]))
    assert re.match(r"process of rank 0 \(.*\) of 3 kept the others waiting for too long", said)


def pause_all(seconds):
    with process_group() as processes:
        pids = " ".join(map(str, processes.gather(os.getpid())))
        if processes.first:
            subprocess.Popen(["sh", "-c", f"kill -STOP {pids}; sleep {seconds}; kill -CONT {pids}"])
        for _ in range(30):
            time.sleep(0.1)
            processes.sum([1.0])
        return "done"


def test_processes_that_are_stopped_and_continued_together_go_on(impatient):
    assert in_processes(pause_all, 4, size=2) == ["done", "done"]


# ---------------------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize(("accumulate", "size"), [(1, 2), (2, 2), (3, 2), (2, 3), (4, 6), (1, 5)])
@pytest.mark.parametrize("began", [None, 4])
def test_every_utterance_is_dealt_to_one_process_and_all_have_as_many_batches(tmp_path, accumulate, size, began):
    """Also in a run that began with four processes."""
    trainer = Trainer(load(make_corpus(tmp_path, {"train": 23, "dev": 1})), tmp_path / "run")
    plan = [list(range(i, min(i + 4, 23))) for i in range(0, 23, 4)]  # the last batch has three, fewer than parts
    parts = parts_for(accumulate, size)
    if began:
        parts = parts_to_resume(parts_for(accumulate, began), accumulate, size)
    data = (trainer.steps.examples, plan, trainer.cache, trainer.stats, trainer.config.spec_augment, (0, 1))
    whole = list(Batches(*data).loader())
    given = [Processes(rank, size) for rank in range(size)]
    dealt = [list(Batches(*data, parts).loader(processes=one, together=accumulate)) for one in given]
    steps = [plan[i : i + accumulate] for i in range(0, len(plan), accumulate)]
    assert {len(batches) for batches in dealt} == {sum(-(-len(step) * parts // size) for step in steps)}
    counted = [batch for batches in dealt for batch in batches if batch.counts]
    assert sorted(id for batch in counted for id in batch.ids) == sorted(id for batch in whole for id in batch.ids)
    masked = {id: x[:n] for b in whole for id, x, n in zip(b.ids, b.x, b.x_lengths.tolist(), strict=True)}
    for batch in counted:
        for id, x, n in zip(batch.ids, batch.x, batch.x_lengths.tolist(), strict=True):
            assert torch.equal(x[:n], masked[id])  # SpecAugment does not depend on the number of processes
    assert len({batch.seed for batch in counted}) == len(counted)  # nor does a process repeat another's dropout
    if parts == 1:
        assert {batch.seed for batch in counted} == {batch.seed for batch in whole}


def test_continued_process_takes_up_its_own_share(tmp_path):
    trainer = Trainer(load(make_corpus(tmp_path, {"train": 12, "dev": 1})), tmp_path / "run")
    plan = [[i, i + 1] for i in range(0, 12, 2)]
    batches = Batches(trainer.steps.examples, plan, trainer.cache, trainer.stats, parts=2)
    here = list(batches.loader(processes=Processes(1, 2)))
    there = list(batches.loader(start=4, processes=Processes(1, 2)))
    assert [b.ids for b in there] == [b.ids for b in here[4:]] == [["train9"], ["train11"]]


# --------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    ("accumulate", "train_size", "dev_size"),
    [
        (1, 20, 6),  # each batch is cut in two
        (2, 20, 6),  # whole batches go round; the last step has one
        (3, 9, 1),  # one of two processes has nothing to validate
    ],
)
def test_two_processes_take_the_steps_of_one(tmp_path, accumulate, train_size, dev_size):
    recipe = make_corpus(tmp_path, {"train": train_size, "dev": dev_size})
    fields = {"criterion": "otc-tw-h", "optimizer__accumulate": accumulate, "training__epochs": 2}
    config = plain(recipe, data__batch_seconds=5, **fields)
    train(config, tmp_path / "one")
    assert in_processes(train, config, tmp_path / "two") == [tmp_path / "two/model"] * 2
    assert_same_run(tmp_path / "one", tmp_path / "two")
    one, two = (load_tensors(tmp_path / run / "model/model.safetensors")[0] for run in ("one", "two"))
    weights = [name for name in one if not name.endswith("qkv.bias")]  # attention does not feel the bias of its keys
    assert max(float((one[name] - two[name]).abs().max()) for name in weights) < 2e-3


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_processes_take_the_steps_of_one_with_all_that_is_added_to_the_loss(tmp_path, accumulate):
    recipe = make_corpus(tmp_path, {"train": 12, "dev": 2})
    added = {
        "cr_ctc__weight": 0.2, "inter_ctc__layers": [1], "inter_ctc__weight": 0.4, "label_smoothing__weight": 0.05,
        "encoder__blocks": 2,
    }  # fmt: skip
    config = plain(recipe, data__batch_seconds=5, criterion="otc-tw-em", training__epochs=2, **added)
    config.spec_augment.freq_masks, config.spec_augment.freq_width = 2, 10  # so that the two copies differ
    config.optimizer.accumulate = accumulate
    train(config, tmp_path / "one")
    in_processes(train, config, tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two")
    assert read_rows(tmp_path / "one/metrics.jsonl")[0]["train_consistency"] > 0


def test_two_processes_take_the_steps_of_one_where_transcripts_have_alternatives(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 4, "dev": 1})
    rows = [
        row | {"text": f"{{{row['text']}|fa}}" if n % 3 else "bad"}
        for n, row in enumerate(read_rows(tmp_path / "train.jsonl"))
    ]
    write_rows(tmp_path / "train.jsonl", rows)
    config = plain(recipe, data__batch_seconds=5, criterion="otc-tw", training__epochs=1)
    train(config, tmp_path / "one")
    in_processes(train, config, tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_process_without_utterances_waits_for_the_others_and_adds_nothing(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 3, "dev": 1})
    config = plain(recipe, data__batch_seconds=0.1, training__epochs=2)  # batches of one utterance: two have none
    train(config, tmp_path / "one")
    in_processes(train, config, tmp_path / "three", size=3)
    assert_same_run(tmp_path / "one", tmp_path / "three")


def weights_after(config, run):
    with process_group() as processes:
        trainer = Trainer(config, run, processes)
        trainer._export = lambda: run  # which would load into all what one has written
        trainer.run()
        return {name: tensor.tolist() for name, tensor in trainer.model.state_dict().items()}


def test_processes_keep_the_same_weights_with_batch_norm_dropout_and_masks_and_repeat_them(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 12, "dev": 2})
    config = load(recipe, training__epochs=2, training__average=1)
    first, second = in_processes(weights_after, config, tmp_path / "a")
    assert first == second
    assert in_processes(weights_after, config, tmp_path / "b")[0] == first
    assert abs(first["encoder.blocks.0.convolution.norm.running_mean"][0]) > 0


def test_features_are_computed_once_and_bad_audio_is_reported_once(tmp_path, monkeypatch, capfd):
    recipe = make_corpus(tmp_path, {"train": 11, "dev": 3})
    (tmp_path / "train4.wav").write_bytes(b"no audio")
    extract = Fbank.extract

    def counted(self, wave):
        with open(tmp_path / "calls", "a") as file:
            file.write("x")
        return extract(self, wave)

    monkeypatch.setattr(Fbank, "extract", counted)
    config = plain(recipe, data__max_bad=0.5, training__epochs=1)
    in_processes(train, config, tmp_path / "run", size=3)
    assert len((tmp_path / "calls").read_text()) == 10 + 3
    said = capfd.readouterr().err
    for text in ("skipped: train4", "10 training utterances", "epoch 1: train_loss", "model of epochs 1"):
        assert said.count(text) == 1, text
        assert (tmp_path / "run/log.txt").read_text().count(text) == 1, text


# --------------------------------------------------------------------------------------------------- what goes wrong


def train_until(step, config, run):
    """Train as a process that is killed after so many steps."""
    with process_group() as processes:
        trainer = Trainer(config, run, processes)
        take = trainer._step

        def until(*arguments):
            if trainer.step == step:
                raise WildCTCError("killed")
            return take(*arguments)

        trainer._step = until
        return trainer.run()


def finish(size, config, run):
    return train(config, run) if size == 1 else in_processes(train, config, run, size=size)


@pytest.mark.parametrize(
    ("began", "size", "accumulate", "same_bits"),
    [
        (2, 1, 1, True),  # each batch was cut in two, and still is
        (3, 2, 1, False),  # three parts for two processes: one of them has nothing in every second round
        (1, 2, 2, True),  # whole batches went round, and still do
    ],
)
def test_run_goes_on_with_another_number_of_processes_to_the_same_weights(
    tmp_path, capfd, began, size, accumulate, same_bits
):
    recipe = make_corpus(tmp_path, {"train": 16, "dev": 2})
    config = load(recipe, encoder__kind="e_branchformer", training__epochs=2, training__checkpoint_steps=2,
                  data__batch_seconds=3 / accumulate, optimizer__accumulate=accumulate)  # fmt: skip
    assert config.encoder.dropout > 0
    finish(began, config, tmp_path / "whole")
    assert messages(in_processes(train_until, 3, config, tmp_path / "run", size=began)) == ["killed"]
    capfd.readouterr()
    finish(size, config, tmp_path / "run")
    said = capfd.readouterr().err
    assert said.count(f"had {began} processes and resumes with {size}: the same batches, masks and dropout") == 1
    assert "epoch 1, step 2" in said  # in the middle of it
    one, two = last(tmp_path / "whole")[0], last(tmp_path / "run")[0]
    if same_bits:
        assert all(torch.equal(one[name], two[name]) for name in one)
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_more_processes_than_parts_cut_anew_and_say_that_dropout_is_another(tmp_path, capfd):
    config = load(make_corpus(tmp_path, {"train": 6, "dev": 1}), training__epochs=2, training__checkpoint_steps=1)
    assert messages(in_processes(train_until, 1, config, tmp_path / "run", size=1)) == ["killed"]
    capfd.readouterr()
    in_processes(train, config, tmp_path / "run")
    said = capfd.readouterr().err
    assert "had 1 processes and resumes with 2: batches are cut into 2 parts, not 1, so from here on dropout" in said
    state = last(tmp_path / "run")[1]
    assert (state["processes"], state["parts"]) == (2, 2)


def test_divergence_ends_all_processes_with_one_message(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 12, "dev": 2})
    config = plain(recipe, optimizer__lr=1e30, optimizer__warmup_steps=1, criterion="otc-tw")
    [said] = messages(in_processes(train, config, tmp_path / "run"))
    assert re.search(r"training has diverged: .*--optimizer\.lr.*word_bypass", said)


def test_collapse_ends_all_processes_with_one_message(tmp_path, capfd):
    recipe = make_corpus(tmp_path, {"train": 60, "dev": 3})
    config = plain(recipe, training__epochs=50, criterion="otc-w")
    [said] = messages(in_processes(train, config, tmp_path / "run"))
    assert re.search(r"has collapsed to wildcards.*--schedule\.self_loop -", said)
    assert capfd.readouterr().err.count("training is collapsing") >= 1
    steps = re.findall(r"step (\d+): training is collapsing", (tmp_path / "run/log.txt").read_text())
    assert len(steps) == len(set(steps))


def watch_apart(bypassed_rows):
    """What two processes say of batches in which process 0's utterances are all bypassed and process 1's not at all."""
    with process_group() as processes:
        rows = bypassed_rows if processes.first else 2
        heard = torch.tensor([3, 0, 3] if processes.first else [1, 0, 2])
        logits = 9.0 * torch.nn.functional.one_hot(heard, 4)[:, None].expand(-1, rows, -1).float()  # (T, N, V)
        lengths, targets = torch.full((rows,), 3), torch.tensor([[1, 2]] * rows)
        none = torch.zeros(rows, 2, dtype=torch.int64)
        batch = Batch([], logits, lengths, targets, torch.full((rows,), 2), none, [])
        watch = DivergenceWatch(Criterion("otc-t", bypass=-0.1), processes=processes)
        watch.arcs(20, logits, lengths, batch)
        return str(watch.last)


@pytest.mark.parametrize(("rows", "expected"), [(1, "None"), (6, "of the tokens are bypassed")])
def test_processes_judge_a_collapse_by_all_their_utterances(rows, expected):
    first, second = in_processes(watch_apart, rows)
    assert first == second
    assert expected in first


def test_one_device_is_not_enough_for_two_processes(tmp_path):
    config = plain(make_corpus(tmp_path, {"train": 2, "dev": 1}), training__device="cpu:0")
    assert messages(in_processes(train, config, tmp_path / "run")) == [
        "training.device cpu:0 is one device for 2 processes; try auto"
    ]


# ----------------------------------------------------------------------------------------------------- with torchrun


HANGS = 900  # seconds: a test that fails is better than one that never ends


def torchrun(*arguments, size=2) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return subprocess.Popen(
        [*command, "-m", "wildctc", "train", *map(str, arguments)], env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def descendants(pid: int) -> list[int]:
    """Process ids: children first, in the order in which they were started."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def kill_when(process: subprocess.Popen, path: Path, find, by=signal.SIGKILL) -> str:
    """Kill the processes that `find` names as soon as `path` is there; returns what was written."""
    deadline = time.monotonic() + 120
    while process.poll() is None and not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in find(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, by)
    return process.communicate(timeout=60)[0]


def test_killed_torchrun_goes_on_to_the_same_weights(tmp_path):
    recipe = make_corpus(tmp_path / "corpus", {"train": 30, "dev": 4})
    options = ("--criterion", "otc-tw-h", "--training.epochs", "4", "--training.checkpoint_steps", "2")
    whole = torchrun(recipe, "--out", tmp_path / "whole", *options)
    output = whole.communicate(timeout=HANGS)[0]
    assert whole.returncode == 0, output
    assert output.count(f"{tmp_path}/whole/model\n") == 1  # printed by one
    assert "Warning" not in output
    run = tmp_path / "killed"
    checkpoint = run / "checkpoints/last.safetensors"
    killed = torchrun(recipe, "--out", run, *options)
    kill_when(killed, checkpoint, lambda pid: [pid])  # the others end with it
    assert killed.returncode == -signal.SIGKILL
    assert not (run / "model").exists()
    rest = torchrun(recipe, "--out", run, *options)
    output = rest.communicate(timeout=HANGS)[0]
    assert rest.returncode == 0, output
    assert output.count("resuming from") == 1
    assert (run / "model/model.safetensors").read_bytes() == (tmp_path / "whole/model/model.safetensors").read_bytes()
    first, second = (read_rows(tmp_path / name / "metrics.jsonl") for name in ("whole", "killed"))
    assert [m | {"seconds": 0} for m in first] == [m | {"seconds": 0} for m in second]


def test_mistake_of_one_process_is_one_line_before_what_torchrun_adds(tmp_path):
    recipe = make_corpus(tmp_path / "corpus", {"train": 12, "dev": 2})
    process = torchrun(recipe, "--out", tmp_path / "run", "--training.epochs", "1000", "--data.cache", "null")

    def vanish(pid):
        for row in read_rows(tmp_path / "corpus/train.jsonl")[::2]:
            (tmp_path / "corpus" / row["audio"]).unlink()
        return []

    output = kill_when(process, tmp_path / "run/checkpoints/last.safetensors", vanish)
    assert process.returncode == 1  # torchrun's
    ours = output[: output.index("torch/distributed/elastic")]
    assert "Traceback" not in ours
    mistake = r"wildctc: \d+ of 12 utterances of train were lost since the run started, .* train\d+ \(.*no such file"
    assert len(re.findall(mistake, output)) == 1
    assert output.count("wildctc: ") == 1
    assert len(re.findall(mistake, (tmp_path / "run/log.txt").read_text())) == 1


def test_mistake_before_the_processes_meet_is_one_line(tmp_path):
    output = torchrun("no-such-recipe", "--out", tmp_path / "run").communicate(timeout=HANGS)[0]
    assert output.count("wildctc: no recipe 'no-such-recipe'") == 1
    assert "Traceback" not in output[: output.index("torch/distributed/elastic")]


@pytest.mark.parametrize(("by", "said"), [(signal.SIGKILL, "was killed"), (signal.SIGTERM, "was told to end")])
def test_killed_worker_is_named_and_ends_the_run_at_once(tmp_path, by, said):
    recipe = make_corpus(tmp_path / "corpus", {"train": 12, "dev": 2})
    process = torchrun(recipe, "--out", tmp_path / "run", "--training.epochs", "1000")
    last_checkpoint = tmp_path / "run/checkpoints/last.safetensors"
    output = kill_when(process, last_checkpoint, lambda pid: descendants(pid)[1:2], by)
    assert process.returncode == 1
    assert "Traceback" not in output[: output.index("torch/distributed/elastic")]
    assert output.count("wildctc: ") == 1
    assert re.search(rf"wildctc: process of rank 1 \(.*\) of 2 {said}", output)
    assert last(tmp_path / "run")[1]["processes"] == 2


def test_two_processes_estimate_the_noise_rates_of_one(tmp_path):
    recipe = make_corpus(tmp_path / "corpus", {"train": 13, "dev": 5})
    fields = {"criterion": "otc-tw-em", "training__epochs": 2, "optimizer__accumulate": 2, "rates__by": "speaker"}
    config = plain(recipe, **fields)
    train(config, tmp_path / "one")
    in_processes(train, config, tmp_path / "two")
    rates = [last(tmp_path / name)[1]["criterion"]["rates"] for name in ("one", "two")]
    assert any(map(any, rates[0]["last"][1]))
    for name in ("corpus", "rates", "last"):
        flat = [str(rate[name]) for rate in rates]
        one, two = (torch.tensor(eval(text.replace("None", "0.0"))) for text in flat)
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
