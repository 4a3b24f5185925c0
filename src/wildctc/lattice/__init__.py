"""The lattice: loss, posteriors and best path, from logits and transcripts alone."""
