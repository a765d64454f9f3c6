"""Normalisations are composites; what rules their parts need is here."""
