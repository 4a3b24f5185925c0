"""Fine-tune a CTC model of Hugging Face on transcripts that are not perfectly right.

python examples/huggingface_finetune.py MODEL TRAIN.jsonl DEV.jsonl OUT [CRITERION] [EPOCHS]

MODEL is a folder or a name for `AutoModelForCTC`; a manifest has a row {"audio": "a.wav", "text": "…"} for each
utterance, paths relative to it. With `Trainer` for `WildcardCTCTrainer` and without `criterion` it is plain CTC. An
interrupted run goes on when the same command is given again. Needs `pip install '.[hf]' soundfile` in a checkout.
"""

import json
import sys
from pathlib import Path

import soundfile
import torch
from transformers import AutoModelForCTC, AutoProcessor, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from wildctc import Criterion
from wildctc.errors import WildCTCError
from wildctc.integrations.huggingface import WildcardCTCTrainer


class Speech(torch.utils.data.Dataset):
    def __init__(self, manifest: str, processor) -> None:
        self.rows = [json.loads(line) for line in Path(manifest).read_text(encoding="utf-8").splitlines()]
        self.folder, self.processor = Path(manifest).parent, processor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        wave, rate = soundfile.read(self.folder / self.rows[index]["audio"], dtype="float32")
        inputs = self.processor(wave, sampling_rate=rate)
        name = self.processor.model_input_names[0]
        return {name: inputs[name][0], "labels": self.processor.tokenizer(self.rows[index]["text"]).input_ids}


def collate(processor, rows: list[dict]) -> dict:
    """Pad audio and labels, the latter with −100."""
    labels = [torch.tensor(row.pop("labels")) for row in rows]
    batch = processor.feature_extractor.pad(rows, padding=True, return_attention_mask=True, return_tensors="pt")
    return {**batch, "labels": torch.nn.utils.rnn.pad_sequence(labels, True, -100)}


def main(model: str, train: str, dev: str, out: str, criterion: str = "otc-tw-h", epochs: str = "10") -> None:
    try:
        rule = Criterion(criterion)  # first: a wrong name is known before anything is loaded
    except ValueError as error:
        raise WildCTCError(error) from None
    processor = AutoProcessor.from_pretrained(model, trust_remote_code=False)
    arguments = TrainingArguments(
        out, num_train_epochs=float(epochs), learning_rate=1e-4, eval_strategy="epoch", save_strategy="epoch",
        remove_unused_columns=False, report_to="none",
    )  # fmt: skip
    trainer = WildcardCTCTrainer(
        model=AutoModelForCTC.from_pretrained(model, trust_remote_code=False, ctc_loss_reduction="mean"),
        args=arguments,
        data_collator=lambda rows: collate(processor, rows),
        train_dataset=Speech(train, processor),
        eval_dataset=Speech(dev, processor),
        processing_class=processor,
        criterion=rule,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(out) if Path(out).is_dir() else None)
    trainer.save_model(out)


if __name__ == "__main__":
    if not 5 <= len(sys.argv) <= 7:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except WildCTCError as error:
        print(f"huggingface_finetune: {error}", file=sys.stderr)
        sys.exit(2)
