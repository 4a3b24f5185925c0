"""Text: normalisation, the units that a model writes, and the word of each token."""
