"""Passes for XLA's CPU compiler: each works around one of its habits; `benchmarks/passes.py` shows the effects."""
