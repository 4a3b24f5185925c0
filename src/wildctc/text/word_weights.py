"""The weight of each word of a transcript, carried to the words of its normalised form."""

from collections.abc import Sequence

from wildctc.text.normalisation import Normalizer


def follow_words(weights: Sequence[float], text: str, normalizer: Normalizer) -> list[float]:
    """Give each word of a normalised text the weight of the written word that it comes from.

    A word that normalisation splits passes its weight to all parts. A word that normalisation removes loses it.

    Args:
        weights: One number for each word of the text; words stand between spaces.
        text: The text as it is written.
        normalizer: How it is normalised.

    Returns:
        One number for each word of the normalised text.

    Raises:
        ValueError: There are more or fewer weights than words, or the text normalised word by word is not the
            normalised text.

    >>> follow_words([0.5, -1.0, 2.0], "A well-known !", Normalizer(lower=True, strip_punctuation=True))
    [0.5, -1.0, -1.0]
    """
    written = text.split()
    if len(weights) != len(written):
        raise ValueError(f"{len(weights)} weights for {len(written)} words")
    parts = [normalizer(word).split() for word in written]
    if " ".join(part for word in parts for part in word) != normalizer(text):
        raise ValueError("its words cannot be normalised one by one")
    return [weight for weight, word in zip(weights, parts, strict=True) for _ in word]
