"""`python -m tests.counted`: count the cases anew, say what has grown, and record it all, which accepts it.

`--check` records nothing, and fails where a count has grown. JAX and Python take part in instructions, calls and
compilations: these are compared with the versions alone that they were recorded with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
from .measuring import grown, measured, versions

RECORDED = Path(__file__).parents[1] / "data" / "counted.json"


def main() -> int:
    """Parse the command line and run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.counted", description=__doc__)
    parser.add_argument("--check", action="store_true", help="record nothing, and fail where a count has grown")
    check = parser.parse_args().check
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set of texts, and with it who is called how often
        os.execve(sys.executable, [sys.executable, "-m", "tests.counted", *sys.argv[1:]],
                  {**os.environ, "PYTHONHASHSEED": "0"})  # fmt: skip
    found = measured()
    lines = grown(json.loads(RECORDED.read_text()), found) if RECORDED.exists() else []
    print("\n".join(lines) or f"none of the counts of {len(found)} cases has grown")
    if check:
        return int(bool(lines))
    cases = ",\n".join([f"  {json.dumps(name)}: {json.dumps(counts)}" for name, counts in found.items()])
    RECORDED.write_text(f'{{\n "versions": {json.dumps(versions())},\n "cases": {{\n{cases}\n }}\n}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
