"""Faults found by attack: interrupts, threads, tasks, broken files, broken installations, bad values."""
