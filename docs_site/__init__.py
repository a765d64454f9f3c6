"""How the pages of docs/ become a site: pages made of docstrings, examples and tables, and links.

mkdocs builds it. None of this is in the wheel: it needs the sources.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
