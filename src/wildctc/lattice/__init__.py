"""The engine: no audio, no files, no training in here."""
