"""The demo: a small spoken corpus with known faults, two recognisers, and what they say about the faults."""
