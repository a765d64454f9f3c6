"""Selections have no rules of their own: they are made of ops that have theirs."""
