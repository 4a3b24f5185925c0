"""Where annotators disagree, and what probes find there."""
