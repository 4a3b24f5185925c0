"""What several tests share: made-up speech, corpora, probes and results."""
