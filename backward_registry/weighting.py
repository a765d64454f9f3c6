"""These functions are made of arithmetic and sums, which have the rules."""
