"""Hours of audio against a text that is roughly right: alignment, formats, and segments for training."""
