"""Changes of images are made of functions that have rules, and need none."""
