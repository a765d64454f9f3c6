"""Backward rules of pooling."""
