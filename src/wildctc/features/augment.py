"""SpecAugment: how features are varied for training."""

import torch


def spec_augment(
    x: torch.Tensor,
    lengths: torch.Tensor,
    generator: torch.Generator,
    *,
    time_warp: int = 5,
    freq_masks: int = 2,
    freq_width: int = 27,
    time_masks: int = 5,
    time_ratio: float = 0.05,
    rows: range | None = None,
) -> torch.Tensor:
    """Warp time, then mask bands of dimensions and stretches of time with 0, the mean (SpecAugment).

    >>> x = spec_augment(torch.ones(2, 50, 80), torch.tensor([50, 40]), torch.Generator().manual_seed(0))
    >>> x.shape, 0 < x.mean() < 1
    (torch.Size([2, 50, 80]), tensor(True))

    Args:
        x: (N, T, F) or (N, T, layers, F), normalised; all layers are treated alike, as their weighted sum would be.
        lengths: (N,), frames of each utterance.
        generator: On the CPU. It alone decides the outcome, and advances by the same amount whatever the lengths.
        time_warp: Frames that a point inside may move.
        freq_masks: Bands that are masked.
        freq_width: Dimensions that a band may cover.
        time_masks: Stretches of time that are masked.
        time_ratio: The share of an utterance that a stretch may cover.
        rows: x holds these N of the rows of a batch, range(begin, size of the batch, step), and they get the masks that
            they have there; None: x is the batch.

    Returns:
        A new tensor of the shape of x.
    """
    (copy,) = spec_augment_copies(
        x,
        lengths,
        generator,
        1,
        time_warp=time_warp,
        freq_masks=freq_masks,
        freq_width=freq_width,
        time_masks=time_masks,
        time_ratio=time_ratio,
        rows=rows,
    )
    return copy


def spec_augment_copies(
    x: torch.Tensor,
    lengths: torch.Tensor,
    generator: torch.Generator,
    copies: int,
    *,
    time_warp: int,
    freq_masks: int,
    freq_width: int,
    time_masks: int,
    time_ratio: float,
    rows: range | None = None,
) -> list[torch.Tensor]:
    """Warp time once, then mask several copies, each with masks of its own: their frames stay at the same places.

    Args:
        x: As for `spec_augment`, and so are all other arguments.
        lengths: (N,), frames of each utterance.
        generator: On the CPU. The first copy has the masks that `spec_augment` gives.
        copies: How many.
        time_warp: Frames that a point inside may move.
        freq_masks: Bands that are masked.
        freq_width: Dimensions that a band may cover.
        time_masks: Stretches of time that are masked.
        time_ratio: The share of an utterance that a stretch may cover.
        rows: The rows of a batch that x holds.

    Returns:
        New tensors of the shape of x.
    """
    n, frames, dims = x.shape[0], x.shape[1], x.shape[-1]
    lengths = lengths.to(x.device)
    rows = rows or range(n)
    made = []
    for copy in range(copies):
        first = [2, 2 * freq_masks, 2 * time_masks] if copy == 0 else [0, 2 * freq_masks, 2 * time_masks]
        draws = torch.rand(rows.stop, sum(first), generator=generator)[list(rows)].to(x.device)
        warp, bands, stretches = draws.split(first, dim=1)
        if copy == 0 and time_warp > 0:
            x = _warp_time(x, lengths, warp, time_warp)
        whole = torch.full_like(lengths, dims)
        masked = _mask(bands, torch.full_like(lengths, min(freq_width, dims)), whole, dims)[:, None, :]
        masked = masked | _mask(stretches, (lengths * time_ratio).long(), lengths, frames)[:, :, None]
        made.append(x.masked_fill(masked.unsqueeze(2) if x.dim() == 4 else masked, 0.0))
    return made


def _mask(draws: torch.Tensor, widest: torch.Tensor, lengths: torch.Tensor, size: int) -> torch.Tensor:
    """(N, size) True under any of the masks; draws: (N, 2 · masks), for each a width in 0…widest and a place."""
    width_draw, place_draw = draws[:, :, None].chunk(2, dim=1)  # (N, masks, 1)
    width = (width_draw * (widest[:, None, None] + 1)).long()
    begin = (place_draw * (lengths[:, None, None] - width + 1)).long()
    position = torch.arange(size, device=draws.device)
    return ((position >= begin) & (position < begin + width)).any(1)


def _warp_time(x: torch.Tensor, lengths: torch.Tensor, draws: torch.Tensor, window: int) -> torch.Tensor:
    """Moves a point of each utterance by up to `window` frames, stretching one side and squeezing the other.

    Utterances of at most two windows stay as they are, and so does everything past an utterance's end.
    """
    room = (lengths - 2 * window).clamp(min=0)
    centre = window + draws[:, 0] * room
    target = centre + (draws[:, 1] * 2 - 1) * (window - 1)
    time = torch.arange(x.shape[1], device=x.device) + 0.5
    centre, target, end = centre[:, None], target[:, None], lengths[:, None]
    source = torch.where(time < target, time * centre / target, end - (end - time) * (end - centre) / (end - target))
    source = torch.where((room[:, None] > 0) & (time < end), source, time) - 0.5
    source = source.clamp(min=0).minimum(torch.maximum(end, time.ceil().long()[None]) - 1)
    low = source.floor().long()
    high = (low + 1).clamp(max=x.shape[1] - 1)
    share = (source - low).reshape(*low.shape, *[1] * (x.dim() - 2)).to(x.dtype)
    rows = torch.arange(len(x), device=x.device)[:, None]
    return torch.lerp(x[rows, low], x[rows, high], share)
