"""Write the pages of the documentation that are made of facts: `python -m docs_site.peers` in a checkout."""

from docs_site import DOCS

from .pages import pages

for name, text in pages().items():
    (DOCS / name).write_text(text, encoding="utf-8")
    print(DOCS / name)
