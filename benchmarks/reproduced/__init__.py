"""Published comparisons, one a file: `python -m benchmarks.reproducing` runs the `EXPERIMENT` of a file by its name."""
