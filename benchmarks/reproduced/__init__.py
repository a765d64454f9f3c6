"""Published comparisons, one a file: `nngrad reproduce` runs the `EXPERIMENT` of a file by its name."""
