"""The demo: a small spoken corpus with known errors, two recognisers, and how well they find the errors."""
