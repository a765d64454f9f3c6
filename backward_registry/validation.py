"""Measures of how often predictions are right are made of functions that have no derivative."""
