"""`python .ci/contents.py FOLDER`: what is in the sdist and the wheel of a folder, and whether it is what it should be.

The wheel has the files that git lists of the packages, the example that `nngrad demo` runs, and its metadata, and
nothing else. The sdist has these too, and what builds and describes them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

PACKAGES = ("backward_registry", "nngrad", "nngrad_command")
EXAMPLE = "examples/digits.py"
BESIDE = {"CITATION.cff", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
"""What else the sdist has, besides the folder of metadata that setuptools leaves in it."""


def main(folder: Path) -> None:
    """List both, and end with an error where one of them has too much or too little."""
    listed = set(subprocess.check_output(["git", "ls-files", *PACKAGES, EXAMPLE], text=True).split())
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if not name.endswith("/")]
        names = [re.sub(r"^[^/]+\.data/data/share/nngrad/examples/", "examples/", name) for name in found]
    problems = wrong(wheel.name, names, listed, ".dist-info", set())
    show(wheel, names)
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    problems += wrong(sdist.name, names, listed, ".egg-info", BESIDE)
    show(sdist, names)
    if problems:
        sys.exit("\n".join(problems))


def wrong(archive: str, names: Iterable[str], listed: set[str], metadata: str, beside: set[str]) -> list[str]:
    """What an archive lacks of what git lists, and what it should not have."""
    names = {name for name in names if not PurePosixPath(name).parts[0].endswith(metadata)}
    missing, extra = (listed | beside) - names, names - listed - beside
    return [f"{archive}: {what}: {', '.join(sorted(found))}"
            for what, found in (("not in it", missing), ("should not be in it", extra)) if found]  # fmt: skip


def show(archive: Path, names: Iterable[str]) -> None:
    """Print how many files an archive has in each folder, and the others by name."""
    parts = [PurePosixPath(name).parts for name in names]
    folders = Counter(["/".join(p[:2]) if len(p) > 2 else p[0] for p in parts if len(p) > 1])
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB, {len(parts)} files")
    for folder, count in sorted(folders.items()):
        print(f"{count:6}  {folder}/")
    print("        " + ", ".join(sorted([p[0] for p in parts if len(p) == 1])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
