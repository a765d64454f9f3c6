"""Solves need no rules of their own: they are made of those by factors (`factors.py`)."""
