"""Backward rules of losses."""
