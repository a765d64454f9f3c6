"""These losses are made of arithmetic, norms and sums, which have the rules."""
