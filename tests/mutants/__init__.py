"""Faults that are planted, one at a time, to see whether the fast tier finds them.

    python -m tests.mutants                    # 150 faults and more: a table by kind, and what survived
    python -m tests.mutants --rotating 5       # five of them, others with each commit; fails where too many survive
    python -m tests.mutants --list             # the faults, without planting them
    python -m tests.mutants --only ID ...      # some, with what the tests printed
    python -m tests.mutants --tests PATH       # with the tests of another checkout, to compare
    python -m tests.mutants --map              # which tests reach which lines, anew (Python 3.12 or newer)

Faults are found in the source (`faults.py`), and tests that reach them in a kept map (`reach.py`). Each is planted in a
copy of the repository, in which a process that has JAX at hand and has not started it runs the tests (`planting.py`).
"""
