"""The audit: a page on which a person listens to doubtful transcripts and decides, and the corrected manifest."""
