"""A trained recogniser: logits, decoding, transcription, alignment."""
