"""JAX's programs, in the styles of its packages, by nngrad's transformations against its own."""
