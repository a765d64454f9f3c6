"""Backward rules of convolutions: each family is one trilinear form."""
