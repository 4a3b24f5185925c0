"""Errors that are put into transcripts on purpose, and how well a probe finds them."""
