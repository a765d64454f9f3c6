"""Published comparisons with nngrad as one more line, drawn, with a page: `python -m benchmarks.reproducing NAME`."""
