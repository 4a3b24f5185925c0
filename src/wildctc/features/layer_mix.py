"""What is trained behind a frozen model: how much each of its layers counts, and a projection to few dimensions."""

import torch
from torch import Tensor, nn

DIM = 80  # as many as a filterbank has, so that the same encoder fits


class LayerMix(nn.Module):
    """A weighted sum of layers, the weights a softmax, and a linear projection.

    >>> LayerMix(layers=13, dim=768)(torch.zeros(2, 50, 13, 768)).shape
    torch.Size([2, 50, 80])

    Attributes:
        weights: (layers,), before the softmax.
        projection: From the dimensions of the model to 80.
    """

    def __init__(self, layers: int, dim: int) -> None:
        """Begin with equal weights.

        Args:
            layers: Layers of the frozen model.
            dim: Numbers in a frame of a layer.
        """
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.projection = nn.Linear(dim, DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Mix and project.

        Args:
            x: (N, T, layers, dim).

        Returns:
            (N, T, 80).
        """
        mixed: Tensor = self.projection(self.weights.softmax(0) @ x)
        return mixed
