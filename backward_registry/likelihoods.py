"""These losses are made of arithmetic, sums and taken rows, which have the rules."""
