"""Samples are drawn by functions of a key, which have no gradient; what is made of them is made of ops with rules."""
