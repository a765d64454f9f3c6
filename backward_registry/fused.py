"""Functions that are several under one name need no rules: they are made of others."""
