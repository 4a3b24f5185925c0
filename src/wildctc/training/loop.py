"""Train a recogniser, from settings to a model folder.

The loop reads from top to bottom: `train` sets up, `Trainer.run` goes through epochs, `_step` takes one optimiser step.
All randomness derives from (seed, epoch, batch), so checkpoints need no RNG state. Several processes (torchrun) take
each step together, and the first one writes: see `distributed` and `batches`.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from wildctc.distributed import ALONE, Processes, average_statistics, in_parallel, process_group
from wildctc.errors import WildCTCError
from wildctc.features.cache import GivesFeatures
from wildctc.files import make_folder, only_one, remove_parts, write_atomically, write_text
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.noise import NoiseRates
from wildctc.logs import start_log
from wildctc.progress import progress
from wildctc.training.batches import Batch, Batches, plan_batches
from wildctc.training.build import find_device, make_criterion
from wildctc.training.checkpoints import Checkpoints, average, holds
from wildctc.training.config import to_yaml, validate
from wildctc.training.data import find_manifest
from wildctc.training.divergence import DivergenceWatch, check_model
from wildctc.training.evaluation import Evaluation, bypass_posterior, evaluate
from wildctc.training.extension import check_same_run, earlier_lengths, length_at
from wildctc.training.lr_schedule import learning_rate
from wildctc.training.noise import RATES_SAMPLE, CountedArcs, first_rates, percentages, share_counts
from wildctc.training.objective import Objective, TrainedNetwork
from wildctc.training.reports import WEIGHTS, Reports, model_card
from wildctc.training.run_data import load_run_data
from wildctc.training.run_folder import CONFIG, Metrics, checkpoint_folder
from wildctc.training.selection import best_epochs
from wildctc.training.settings import Config
from wildctc.training.steps import TRAIN_SAMPLE, Position, Step
from wildctc.training.targets import Example, make_reader
from wildctc.training.wandb_sink import WeightsAndBiases
from wildctc.training.warm_start import branch_off

_log = logging.getLogger(__name__)


def train(config: Config, out: str | Path, trunk: str | Path | None = None, wandb: str | None = None) -> Path:
    """Train a recogniser, or resume an earlier call with the same settings.

    Args:
        config: The settings.
        out: The run's folder.
        trunk: A run whose settings differ only in criterion and schedule. Its epochs of plain CTC are copied.
        wandb: A project of Weights & Biases that gets the metrics too; None: none does.

    Returns:
        The model folder.

    Raises:
        Diverged: Training failed.
        WildCTCError: The settings are not valid, or the folder holds another run.

    >>> from wildctc.training.config import load_recipe
    >>> train(load_recipe("iban"), "runs/iban")  # doctest: +SKIP
    """
    validate(config)
    with process_group() as processes:
        _check(config)
        run = make_folder(Path(out))
        with only_one(run / ".lock") if processes.first else nullcontext():
            start_log(run)
            if processes.first:
                check_same_run(run, config)
                for folder in (run, run / "data", run / "model"):
                    remove_parts(folder)
                if trunk is not None:
                    branch_off(Path(trunk), run, config)
                write_text(run / CONFIG, to_yaml(config))
            processes.barrier()
            return Trainer(config, run, processes).run(wandb)


def _check(config: Config) -> None:
    """Refuse wrong settings before the folder is created, so that a mistake leaves nothing behind."""
    find_device(config.training.device)
    make_criterion(config)
    make_reader(config.data)  # reads the file of variants
    for split in ("train", "dev"):
        find_manifest(config.data, split)


class Trainer:
    """One run: its data, model and optimiser, and how far it has come.

    Args:
        config: The settings.
        run: The run's folder.
        processes: The training processes.
    """

    def __init__(self, config: Config, run: Path, processes: Processes = ALONE) -> None:
        self.config, self.run_folder, self.processes = config, run, processes
        self.device = find_device(config.training.device)
        if processes.size > 1 and self.device.index is not None:
            raise WildCTCError(f"training.device {self.device} is one device for {processes.size} processes; try auto")
        self.criterion = make_criterion(config)
        data = load_run_data(config, run, self.criterion, processes)
        self.cache, self.model, self.dev = data.cache, data.model.to(self.device), data.dev
        self.data, self.lost, self.hours, self.steps = data.digest, data.lost, data.hours, data.steps
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=config.optimizer.lr,
            betas=(0.9, 0.98),
            weight_decay=config.optimizer.weight_decay,
        )
        self.lengths = [*earlier_lengths(run), config.training.epochs]
        self.sample = self.steps.take(TRAIN_SAMPLE)
        self.parts = self.steps.parts(processes.size)
        self.checkpoints = Checkpoints(checkpoint_folder(run), writes=processes.first)
        self.epoch, self.group, self.step = 1, 0, 0  # the next optimiser step: `group` of `epoch`
        self.places: Any = None  # of the streams of shards
        self.loss_sum, self.utterances, self.seconds = 0.0, 0, 0.0  # of this epoch so far
        self.objective = Objective(config)
        self.part_sums = dict.fromkeys(self.objective.names, 0.0)  # of this epoch so far
        self.history: list[Metrics] = []
        self.spent = {"loss": 0.0, "data": 0.0, "all": 0.0}  # seconds of training steps in this session
        if processes.first:
            self.model.describe(self.checkpoints.folder)  # so that checkpoints can be decoded before the run ends
        self.watch = DivergenceWatch(self.criterion, config.training.ctc_epochs, processes)
        self._restore()
        self.stats = self.model.stats
        self.network = TrainedNetwork(self.model, self.objective.blocks)
        self.parallel = in_parallel(self.network) if processes.size > 1 else None

    # ------------------------------------------------------------------------------------------------------- set-up

    def _restore(self) -> None:
        path = self.processes.tell(self.checkpoints.find() if self.processes.first else None)
        if path is None:
            return
        state = self.checkpoints.restore(path, self.model, self.optimizer, self.model.units.fingerprint())
        if state["data"] != self.data:
            raise WildCTCError(f"{self.run_folder}: the data has changed since the run started; choose another --out")
        self.epoch, self.group, self.step = state["epoch"], state["group"], state["step"]
        self.places = state.get("places")
        self.parts = self.steps.resumed_parts(state, self.processes.size)
        self.loss_sum, self.utterances, self.seconds = state["loss_sum"], state["utterances"], state["seconds"]
        self.history, self.watch.collapsed_epochs = state["history"], state["collapsed_epochs"]
        self.part_sums |= state.get("part_sums", {})  # older checkpoints have none
        try:
            self.criterion.load_state_dict(state["criterion"])
        except ValueError as error:
            raise WildCTCError(f"{path}: {error}: has --rates.by's field changed? choose another --out") from None
        if self.criterion.rates is not None and not self.processes.first:
            self.criterion.rates.forget()  # the first process has the counts of all
        _log.info("resuming from %s: epoch %d, step %d", path, self.epoch, self.step)

    def _save(self) -> None:
        if self.criterion.rates is not None:
            share_counts(self.criterion.rates, self.processes, everywhere=False)
        state = {
            "epoch": self.epoch, "group": self.group, "step": self.step, "loss_sum": self.loss_sum,
            "utterances": self.utterances, "seconds": self.seconds, "history": self.history,
            "criterion": self.criterion.state_dict(), "collapsed_epochs": self.watch.collapsed_epochs,
            "data": self.data, "units": self.model.units.fingerprint(), "processes": self.processes.size,
            "parts": self.parts, "part_sums": self.part_sums,
        }  # fmt: skip
        if (places := self.steps.places()) is not None:
            state["places"] = places
        self.checkpoints.save(self.model, self.optimizer, state)

    # ------------------------------------------------------------------------------------------------------- epochs

    def run(self, wandb: str | None = None) -> Path:
        """Train to the end and write the model folder.

        Args:
            wandb: A project of Weights & Biases that gets the metrics too.

        Returns:
            The model folder.
        """
        self._keep_trunk()
        reports = None
        if self.processes.first:
            sink = WeightsAndBiases(wandb, self.run_folder, asdict(self.config)) if wandb else None
            reports = Reports(self.run_folder, self.history, sink)
        with progress(total=self.lengths[-1] * self.steps.per_epoch, initial=self.step, unit="step") as bar:
            while not self._finished():
                self._train_epoch(bar)
                self._end_epoch()
                if reports:
                    reports.add(self.history)
        if reports:
            reports.close(self.history)
        self._say_shares()
        return self._export()

    def _finished(self) -> bool:
        if self.epoch > self.config.training.epochs:
            return True
        patience = self.config.training.patience
        if patience is None or not self.history:
            return False
        return len(self.history) - self._best()[0] >= patience

    @property
    def _plain(self) -> bool:
        """Whether this epoch is one of the first, of plain CTC."""
        return self.epoch <= self.config.training.ctc_epochs

    @property
    def _wildcards(self) -> Wildcards | NoiseRates:
        return Wildcards() if self._plain else self.criterion.wildcards

    def _train_epoch(self, bar: Any) -> None:
        """Take all steps of an epoch, with checkpoints in between."""
        if self.epoch == self.config.training.ctc_epochs + 1 and self.group == 0:
            self._measure_first_rates()
        self.model.train()
        begun = time.perf_counter()
        position = Position(self.epoch, self.group, self.places)
        for step in self.steps.epoch(position, self.stats, self.parts):
            loss = self._step(step)
            self.group += 1
            bar.update()
            bar.set_postfix(epoch=self.epoch, loss=f"{loss:.2f}", refresh=False)
            if self.step % self.config.training.checkpoint_steps == 0 and not step.last:
                now = time.perf_counter()
                self.seconds, begun = self.seconds + now - begun, now
                average_statistics(self.model, self.processes)
                self._save()
        self.places = None
        average_statistics(self.model, self.processes)
        self.seconds += time.perf_counter() - begun

    def _measure_first_rates(self) -> None:
        """Let noise rates begin where the model that plain CTC has trained finds them, unless a start is given."""
        table = self.criterion.rates
        if table is None or self.config.training.ctc_epochs == 0 or self.config.rates.start is not None:
            return
        batches = self._in_order(*self.steps.take(RATES_SAMPLE), "train")
        table.begin_at(first_rates(self.model, table, batches, self.processes))

    def _step(self, step: Step) -> float:
        """Take one optimiser step; returns the loss, a mean over its utterances."""
        begun = time.perf_counter()
        count = step.count
        self.step += 1
        # forward and backward over this process's share
        self.optimizer.zero_grad(set_to_none=True)
        missing, sums = 0.0, [0.0] * (1 + len(self.part_sums))
        for share in range(step.shares):
            waited = time.perf_counter()
            batch = next(step.batches).to(self.device)
            self.spent["data"] += time.perf_counter() - waited
            torch.manual_seed(batch.seed)  # dropout
            values = self._backward(batch, count, last=share == step.shares - 1)
            sums = [a + b for a, b in zip(sums, values, strict=True)]
            missing += batch.missing
        # clip, check and update
        missing, loss, *parts = self.processes.sum([missing, *sums])
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimizer.clip))
        self.watch.numbers(self.step, loss, norm, step.ids)
        self._set_rate()
        self.optimizer.step()
        self.loss_sum += loss * count
        for name, part in zip(self.part_sums, parts, strict=True):
            self.part_sums[name] += part * count
        self.utterances += count - int(missing)
        self.spent["data"] += step.waited
        self.spent["all"] += step.waited + time.perf_counter() - begun
        return loss

    def _backward(self, batch: Batch, count: int, last: bool) -> list[float]:
        """Add the gradient of a batch's part of the loss: the sum over its utterances ÷ those of the whole step.

        Returns the loss and its parts.

        last: whether it is the last batch of this process in this step; then the gradients of all processes are
            averaged.
        """
        precision = torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.config.training.precision == "bfloat16"
        )
        # encoder, forward
        with self.parallel.no_sync() if self.parallel and not last else nullcontext(), precision:
            logits, lengths = (self.parallel or self.network)(*self.objective.inputs(batch))
        begun = time.perf_counter()
        # Loss: forward and backward on leaves, so that its time is separate from the encoder's.
        leaves = [x.detach().float().requires_grad_() for x in logits]
        rates = None if self._plain else self.criterion.rates
        arcs = None if rates is None else CountedArcs(rates, batch)
        found = self.objective(leaves, lengths, batch, self._wildcards, arcs)
        share = batch.counts / count
        # the processes average gradients, and we need the sum
        (found.total * share * self.processes.size).backward()
        if arcs is not None and batch.counts:
            arcs.count(count / self.processes.size / self.objective.criterion_share)
        self.spent["loss"] += time.perf_counter() - begun
        if not self._plain:
            size = len(batch.ids)
            self.watch.arcs(self.step, leaves[-1][:size].transpose(0, 1), lengths[:size], batch)
        # encoder, backward
        torch.autograd.backward(logits, [leaf.grad.to(x.dtype) for leaf, x in zip(leaves, logits, strict=True)])
        return [share * value for value in (float(found.total.detach()), *found.values.values())]

    def _set_rate(self) -> None:
        o = self.config.optimizer
        total = length_at(self.epoch, self.lengths) * self.steps.per_epoch
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, o.lr, o.warmup_steps, o.decay, total)

    def _end_epoch(self) -> None:
        """Validate, update the criterion's weights, and commit the epoch: the checkpoint holds its metrics."""
        begun = time.perf_counter()
        self.watch.end_epoch(self.step)
        # validate; the entropy decides the weights of the next epoch
        wildcards = self._wildcards
        found = self._evaluate_dev()
        self._relax(found)
        metrics: Metrics = {
            "epoch": self.epoch,
            "train_loss": self.loss_sum / self.utterances,
            **{name: total / self.utterances for name, total in self.part_sums.items()},
            "valid_loss": found.loss,
            "valid_ctc_loss": found.ctc_loss,
            "valid_wer": found.wer,
            "valid_cer": found.cer,
            "valid_deletions": found.deletions,
            "entropy": found.entropy,
            "entropy_smoothed": self.criterion.entropy_decay.smooth,
            **{name: getattr(wildcards, name) for name in WEIGHTS},
            **({"star": getattr(wildcards, "star", None)} if self.criterion.settings.star is not None else {}),
            **(percentages(wildcards) if self.criterion.rates is not None else {}),
            "bypass_posterior_train": bypass_posterior(self.model, self._sample(), self.processes),
            "bypass_posterior_dev": found.bypass_posterior,
            "seconds": round(self.seconds + time.perf_counter() - begun, 3),
        }
        # commit: weights first, then the checkpoint that says that the epoch is finished
        self.checkpoints.save_epoch(self.epoch, self.model)
        self.history.append(metrics)
        self.epoch, self.group = self.epoch + 1, 0
        self.loss_sum, self.utterances, self.seconds = 0.0, 0, 0.0
        self.part_sums = dict.fromkeys(self.part_sums, 0.0)
        self._save()
        self._keep_trunk()
        self.checkpoints.keep(set(self._best()))
        shown = {k: v for k, v in metrics.items() if v is not None and k != "epoch"}
        _log.info("epoch %d: %s", metrics["epoch"], ", ".join(f"{k} {v:.4g}" for k, v in shown.items()))

    def _keep_trunk(self) -> None:
        """Keep the checkpoint at the end of the plain epochs. A run that was killed just before does it on resume."""
        ended = len(self.history) == self.config.training.ctc_epochs and self.group == 0 and self.history
        if ended and self.processes.first and not self.checkpoints.trunk.exists():
            write_atomically(self.checkpoints.trunk, self.checkpoints.last.read_bytes())

    def _relax(self, found: Evaluation) -> None:
        """Update the criterion's weights for the next epoch. Without an entropy (all probability on blank) they stay.

        The entropy is smoothed for every criterion: any of them can branch off from the epochs of plain CTC, and the
        smoothed entropy of any run shows which `h_low` can be reached.
        """
        entropy = math.nan if found.entropy is None else found.entropy
        if self.criterion.rates is not None:
            share_counts(self.criterion.rates, self.processes, everywhere=True)
        held = None
        follows = self.criterion.needs_entropy
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if self._plain or not follows:
                self.criterion.entropy_decay.update(entropy)
            if not self._plain:
                held = self.criterion.step(entropy, loss=found.ctc_loss, cer=found.cer)
        if held:
            _log.warning("the noise rates stay as they are: %s", held)
        for warning in said:
            if follows:  # the warnings are about `h_low`, which only entropy schedules use
                _log.warning("%s", warning.message)

    def _best(self) -> list[int]:
        """The epochs whose weights are averaged, best first."""
        t = self.config.training
        return best_epochs(self.history, t.select_by, t.ctc_epochs, t.average)

    def _evaluate_dev(self) -> Evaluation:
        return evaluate(self.model, self._in_order(self.dev, self.cache, "dev"), self._wildcards, self.processes)

    def _sample(self) -> Iterator[Batch]:
        return self._in_order(*self.sample, "train")

    def _in_order(self, examples: Sequence[Example], features: GivesFeatures, split: str) -> Iterator[Batch]:
        budget = int(self.config.data.batch_seconds * self.cache.front_end.frame_rate)
        plan = self.processes.share(plan_batches([e.frames for e in examples], budget))
        batches = Batches(examples, plan, features, self.stats, lost=self.lost[split], round=2 * self.epoch + 1)
        loader = batches.loader(workers=self.config.data.workers)
        return (batch.to(self.device) for batch in loader if batch.counts)

    # ---------------------------------------------------------------------------------------------------------- end

    def _say_shares(self) -> None:
        if self.spent["all"] > 0:
            loss, data = (self.spent[k] / self.spent["all"] for k in ("loss", "data"))
            _log.info("share of the steps' time: loss %.2f%%, waiting for data %.2f%%", 100 * loss, 100 * data)

    def _export(self) -> Path:
        """Average the best epochs, measure the result and write the model folder."""
        folder = self.run_folder / "model"
        self.processes.barrier()  # the first process may still be writing the last epoch
        # average the best epochs
        epochs = self.checkpoints.present(self._best())
        weights = average([self.checkpoints.epoch(e) for e in epochs])
        if self.processes.tell(holds(folder / "model.safetensors", weights)):
            _log.info("the run is finished: its model is in %s", folder)
            return folder
        # measure the average and write it
        self.model.load_state_dict(weights)
        found = self._evaluate_dev()
        check_model(found)
        final = {"wer": found.wer, "cer": found.cer, "ctc_loss": found.ctc_loss}
        if self.processes.first:
            self.model.save(folder, model_card(self.config, final, self.history, epochs, self.hours, self.lengths[:-1]))
        _log.info("model of epochs %s in %s: dev WER %.2f%%, CER %.2f%% (greedy)",
                 ", ".join(map(str, sorted(epochs))), folder, 100 * found.wer, 100 * found.cer)  # fmt: skip
        return folder
