"""Run a published comparison with nngrad as one more line, draw it, and write its page: `nngrad reproduce NAME`."""
