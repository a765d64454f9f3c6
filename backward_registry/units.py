"""Units are made of activations, products and joins, which have the rules."""
