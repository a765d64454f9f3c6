"""Attention is made of products, sums and a softmax, which have rules, and needs none."""
