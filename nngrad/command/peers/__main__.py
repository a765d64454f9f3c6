"""Write the pages of the documentation that are made of facts: `python -m nngrad.command.peers` in a checkout."""

from pathlib import Path

from .pages import pages

for name, text in pages().items():
    path = Path("docs") / name
    path.write_text(text, encoding="utf-8")
    print(path)
