"""Hugging Face's `Trainer` with a wildcard criterion instead of the model's own CTC loss.

The model, its processor, the data collator and the arguments do not change. The model runs without labels, and the loss
is computed here from its logits.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override  # torch needs it too

from wildctc.criteria import Criterion, predictive_entropy
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_ctc_loss
from wildctc.lattice.noise import NoiseRates
from wildctc.text.words import word_ids

try:
    import accelerate  # noqa: F401  # Trainer needs it, and transformers does not install it
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise MissingExtra((error.name or "transformers").partition(".")[0], "hf") from None

_STATE = "wildctc"  # key of the schedule in trainer_state.json of a checkpoint


class WildcardCTCTrainer(Trainer):
    """A `transformers.Trainer` for any `AutoModelForCTC`.

    The batches are those of the model's own CTC: `labels` (N, S), padded with −100 (or with the padding token, which is
    the blank), and `attention_mask` if the model takes one. Reduction and `zero_infinity` come from the model's
    configuration.

    Criteria with word arcs find words through the tokenizer, so they need `processing_class`. Criteria that follow the
    entropy measure it on `eval_dataset`. The schedule steps at the end of each epoch and is saved in checkpoints.
    Evaluation uses the weights of the last training step. See examples/huggingface_finetune.py.

    Attributes:
        criterion: the criterion with its present weights.

    Args:
        args: positional arguments of `Trainer`.
        criterion: a name ("otc-tw") or a `Criterion`.
        kwargs: keyword arguments of `Trainer`.
    """

    def __init__(self, *args: Any, criterion: Criterion | str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.criterion = Criterion(criterion) if isinstance(criterion, str) else criterion
        # Our loss is the loss of one batch, so Trainer must divide it when it accumulates gradients. By default Trainer
        # assumes that a model which accepts further arguments, as these models do, has divided already.
        self.model_accepts_loss_kwargs = False
        self.loss_is_scaled_for_ga = False
        if self.criterion.rates is not None:
            raise WildCTCError(
                f"criterion {self.criterion.name} estimates noise rates, which this trainer does not count; choose a "
                "criterion with a schedule, such as otc-tw, or use `WildcardCTCLoss` in a loop of your own"
            )
        self._trained_with: Wildcards | NoiseRates | None = None
        if self.criterion.needs_entropy and self.eval_dataset is None:
            raise WildCTCError(f"criterion {self.criterion.name} follows the held-out entropy: give eval_dataset")
        self._words = LabelWords(self.processing_class) if self.criterion.needs_words else None
        self.add_callback(WildcardSchedule(self))

    @property
    def _blank(self) -> int:
        blank = self.model.config.pad_token_id
        if blank is None:
            raise WildCTCError("the model's configuration has no pad_token_id, which is the blank: set it")
        return blank

    @override
    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        outputs, logits, lengths = self._logits(model, inputs)
        labels = inputs["labels"]
        kept = (labels >= 0) & (labels != self._blank)
        if model.training or self._trained_with is None:
            self._trained_with = self.criterion.wildcards
        loss = wildcard_ctc_loss(
            logits,
            labels[kept],
            lengths,
            kept.sum(-1),
            self._blank,
            self.model.config.ctc_loss_reduction,
            self.model.config.ctc_zero_infinity,
            wildcards=self._trained_with,
            words=self._words(labels, kept) if self._words is not None else None,
        )
        return (loss, outputs) if return_outputs else loss

    def _logits(self, model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[Any, Tensor, Tensor]:
        """The model's outputs, its logits as a view (T, N, C), and the valid frames of each utterance (N,)."""
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        logits = outputs.logits
        lengths = _frame_lengths(self.accelerator.unwrap_model(model), inputs.get("attention_mask"), logits)
        return outputs, logits.transpose(0, 1), lengths

    @torch.no_grad()
    def held_out_entropy(self) -> float:
        """The predictive entropy over `eval_dataset`: sums over all utterances and processes, then their quotient.

        It restores the state of the random numbers, so that a resumed run equals a run without interruption.

        Returns:
            The entropy per frame (specification §5).
        """
        model, training = self.model_wrapped, self.model_wrapped.training
        sums = torch.zeros(2, dtype=torch.float64)
        model.eval()
        with torch.random.fork_rng(devices=[]):
            for inputs in self._held_out():
                _, logits, lengths = self._logits(model, self._prepare_inputs(inputs))
                each = [
                    torch.stack(predictive_entropy(x.unsqueeze(1), n.unsqueeze(0), self._blank))
                    for x, n in zip(logits.unbind(1), lengths, strict=True)
                ]
                # by utterance: a process without utterances left repeats some, and gather_for_metrics drops these
                sums += self.accelerator.gather_for_metrics(torch.stack(each)).sum(0).cpu()
        model.train(training)
        return float(sums[0] / sums[1])

    def _held_out(self) -> Iterator[dict[str, Any]]:
        sets = self.eval_dataset
        for name in sets if isinstance(sets, dict) else [None]:
            yield from self.get_eval_dataloader(name)


class WildcardSchedule(TrainerCallback):
    """Steps a trainer's criterion at the end of each epoch, before the trainer evaluates or saves.

    `on_epoch_end` of Trainer comes too late: the checkpoint of the last step is written before it.

    Args:
        trainer: whose criterion is stepped.
    """

    def __init__(self, trainer: WildcardCTCTrainer) -> None:
        self._trainer = trainer
        self._first = trainer.criterion.state_dict()
        self._stepped = False

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        criterion = self._trainer.criterion
        saved = state.stateful_callbacks.get(_STATE)
        if saved is not None and saved["criterion"] != criterion.name:
            raise WildCTCError(
                f"the checkpoint was trained with {saved['criterion']}, not with {criterion.name}: "
                "load its weights into a new run to change the criterion"
            )
        if saved is None and state.global_step:
            warnings.warn(
                "the checkpoint has no wildcard schedule: the schedule starts with its first epoch", stacklevel=2
            )
        numbers = saved["state"] if saved is not None else self._first
        criterion.load_state_dict({key: math.nan if value is None else value for key, value in numbers.items()})
        self._trainer._trained_with = None
        self._keep(state)

    @override
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._stepped = False

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.epoch == int(state.epoch):
            self._step(state)

    @override
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # the epoch was shorter than expected; an epoch that the end of training cuts off may be resumed
        if not self._stepped and not control.should_training_stop:
            self._step(state)

    def _step(self, state: Any) -> None:
        self._stepped = True
        criterion = self._trainer.criterion
        entropy = self._trainer.held_out_entropy() if criterion.needs_entropy else None
        criterion.step(entropy)
        self._keep(state)
        weights = criterion.wildcards
        values = {"entropy": entropy, "bypass": weights.bypass}
        values |= {"self_loop": weights.self_loop, "word_bypass": weights.word_bypass}
        if logs := {f"wildctc/{name}": value for name, value in values.items() if value is not None}:
            self._trainer.log(logs)

    def _keep(self, state: Any) -> None:
        """Put the schedule into the trainer's state, which checkpoints contain. NaN becomes null, as JSON needs it."""
        kept = self._trainer.criterion.state_dict()
        numbers = {key: None if math.isnan(value) else value for key, value in kept.items()}
        state.stateful_callbacks[_STATE] = {"criterion": self._trainer.criterion.name, "state": numbers}


def _frame_lengths(model: Any, attention_mask: Tensor | None, logits: Tensor) -> Tensor:
    """The number of valid frames of each utterance (N,): the attention mask through the model's own down-sampling.

    logits: (N, T, C). Without a mask all frames are valid, as for the model.
    """
    size, frames, _ = logits.shape
    if attention_mask is None:
        return torch.full((size,), frames, device=logits.device)
    if hasattr(model, "_get_feat_extract_output_lengths"):  # wav2vec 2.0 and its relatives
        return model._get_feat_extract_output_lengths(attention_mask.sum(-1)).long()
    if hasattr(model, "_get_output_attention_mask"):  # Parakeet and its relatives
        return model._get_output_attention_mask(attention_mask, target_length=frames).sum(-1)
    raise WildCTCError(f"{type(model).__name__} does not say how many frames it makes of an attention mask")


class LabelWords:
    """Finds the word that each label belongs to, by the tokenizer's word delimiter (characters) or its ▁ (pieces).

    Args:
        processing_class: a tokenizer, or a processor that has one.
    """

    def __init__(self, processing_class: Any) -> None:
        self._tokenizer = getattr(processing_class, "tokenizer", processing_class)
        if not hasattr(self._tokenizer, "get_vocab"):
            raise WildCTCError(
                "this criterion needs words: give processing_class=, a tokenizer or a processor with one"
            )
        vocabulary = self._tokenizer.get_vocab()
        delimiter = getattr(self._tokenizer, "word_delimiter_token", None)
        self._space = delimiter if delimiter in vocabulary else None
        if self._space is None and not any(token.startswith("▁") for token in vocabulary):
            raise WildCTCError(
                "this criterion needs words: the tokenizer's vocabulary has neither '|' nor pieces with ▁"
            )

    def __call__(self, labels: Tensor, kept: Tensor) -> Tensor:
        """The words of the labels that are kept, utterances concatenated. labels and kept: (N, S)."""
        words: list[int] = []
        for row, inside in zip(labels.cpu(), kept.cpu(), strict=True):
            tokens = self._tokenizer.convert_ids_to_tokens(row[inside].tolist())
            words += word_ids(tokens, space=self._space)
        return torch.tensor(words, dtype=torch.int64, device=labels.device)  # dtype: the list may be empty
