"""Corpora: from files on disk to utterances with audio and text."""
