"""Packed sequences are made of points that are taken, which has a rule, and need none."""
