"""Backward rules of functions that steer gradients."""
