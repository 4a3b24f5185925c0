"""Things that work and are tested, but are slow or may change: not part of the stable interface."""
