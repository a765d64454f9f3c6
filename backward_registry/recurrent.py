"""Recurrent layers are composites: the loops and products that they are made of have rules, and they need none."""
