"""Backward rules of selecting and placing elements."""
