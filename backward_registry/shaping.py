"""Reshaping has no rules of its own: these functions are made of ops that have theirs."""
