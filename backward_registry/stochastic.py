"""Random draws have no gradient."""
