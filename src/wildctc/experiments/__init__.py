"""The paper's experiments as grids of runs, from corpus to table."""
