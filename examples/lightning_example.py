"""Lightning with a wildcard criterion: a small recogniser of random speech (pip install '.[lightning]')."""

import lightning
import torch

from wildctc import WildcardCTCLoss
from wildctc.integrations.lightning import WildcardSchedule


class Recogniser(lightning.LightningModule):
    def __init__(self, criterion: str = "otc-t-h") -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(40, 20)
        self.loss = WildcardCTCLoss(wildcards=criterion)

    def training_step(self, batch, index):
        features, lengths, *targets = batch
        return self.loss(self.encoder(features).transpose(0, 1), targets[0], lengths, targets[1])

    def validation_step(self, batch, index):
        return {"logits": self.encoder(batch[0]).transpose(0, 1), "input_lengths": batch[1]}  # for the schedule

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def speech(size: int) -> list:
    """Features (50, 40), frames, targets (8,), labels; output 0 is blank."""
    return [(torch.randn(50, 40), 50 - n % 9, torch.randint(1, 20, (8,)), 8 - n % 3) for n in range(size)]


if __name__ == "__main__":
    model = Recogniser()
    trainer = lightning.Trainer(max_epochs=3, callbacks=[WildcardSchedule(model.loss.criterion)], accelerator="auto")
    loader = torch.utils.data.DataLoader(speech(16), batch_size=4)
    trainer.fit(model, loader, torch.utils.data.DataLoader(speech(8), batch_size=4))
    print(model.loss.criterion)
