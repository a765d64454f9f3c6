"""The command."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .equivalent import EQUIVALENT
from .faults import MUST_BE_FOUND, QUOTAS, Fault, all_faults, chosen
from .planting import Copy, Verdict, judged, judged_together
from .processes import prepare
from .reach import ROOT, Reach, make
from .swapping import is_swappable

LEAST_FOUND = 0.98
"""Of the faults in rules, facts and rewriting; one may survive in any case."""


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--rotating", type=int, metavar="N", help="so many, others with each commit")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these, with what the tests printed")
    parser.add_argument("--seed", type=int, default=0, help="other faults")
    parser.add_argument("--tests", type=Path, help="a checkout whose tests are run in place of these")
    parser.add_argument("--kept", type=Path, help="a file for verdicts; those that it has are not sought again")
    parser.add_argument("--list", action="store_true", help="tell the faults, and plant none")
    parser.add_argument("--map", action="store_true", help="find out anew which tests reach which lines")
    given = parser.parse_args()
    if given.map:
        make(ROOT)
        return 0
    faults = chosen(ROOT, given.seed)
    if given.only:
        faults = [fault for group in QUOTAS for fault in all_faults(ROOT, group) if fault.id in given.only]
    if given.rotating:
        faults = rotated([fault for fault in faults if fault.id not in EQUIVALENT], given.rotating)
    if given.list:
        print(*faults, sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        verdicts = planted(faults, given.tests, given.kept or Path(folder) / "kept", bool(given.only))
    print(table(faults, verdicts))
    missed = [fault for fault in faults if not verdicts[fault.id].found and fault.id not in EQUIVALENT]
    for fault in missed:
        print(f"survives: {fault}\n          {verdicts[fault.id].how}")
    sought = [fault for fault in faults if fault.group in MUST_BE_FOUND and fault.id not in EQUIVALENT]
    left = [fault for fault in missed if fault.group in MUST_BE_FOUND]
    return int(len(left) > max(1, (1 - LEAST_FOUND) * len(sought)))


def rotated(faults: list[Fault], count: int) -> list[Fault]:
    """Some of the faults, of each group as many as it has, by the number of commits."""
    done = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    at = int(done.stdout or 0) * count
    by_id = sorted(faults, key=lambda fault: fault.id)
    return [by_id[(at + i) % len(by_id)] for i in range(count)]


def planted(faults: list[Fault], tests: Path | None, kept: Path, loud: bool) -> dict[str, Verdict]:
    """The verdict of each fault."""
    prepare()
    copy, reach = Copy(ROOT, tests), Reach(ROOT)
    told = os.dup(1)

    def said(fault: Fault, verdict: Verdict) -> None:
        what = "found" if verdict.found else "equivalent" if fault.id in EQUIVALENT else "SURVIVES"
        lines = f"{what:<10} {fault}\n           {verdict.how} ({verdict.seconds:.1f} s)\n"
        os.write(told, (lines + (copy.log.read_text() if loud else "")).encode())
        with kept.open("a") as file:
            file.write(json.dumps([fault.id, verdict]) + "\n")

    left = [fault for fault in faults if fault.id not in known(kept)]
    try:
        if swappable := [fault for fault in left if is_swappable(fault, ROOT)]:
            judged_together(swappable, copy, reach, said)
        for fault in left:
            if fault.id not in known(kept):
                said(fault, judged(fault, copy, reach))
    finally:
        copy.remove()
    return known(kept)


def known(kept: Path) -> dict[str, Verdict]:
    """The verdicts that a file has."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    return {name: Verdict(*verdict) for name, verdict in map(json.loads, lines)}


def table(faults: list[Fault], verdicts: dict[str, Verdict]) -> str:
    """How many faults of each group were found."""
    lines = ["group        planted  found  equivalent  survive"]
    for group in QUOTAS:
        counts = Counter([
            "found" if verdicts[fault.id].found else "equivalent" if fault.id in EQUIVALENT else "survive"
            for fault in faults if fault.group == group
        ])  # fmt: skip
        numbers = [sum(counts.values()), counts["found"], counts["equivalent"], counts["survive"]]
        lines.append(f"{group:<12} {numbers[0]:>7} {numbers[1]:>6} {numbers[2]:>11} {numbers[3]:>8}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
