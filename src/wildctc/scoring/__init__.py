"""Error rates, comparison of systems, and the bootstrap behind every interval."""
