"""What other libraries have: nnabla's names and where they are here, and who can differentiate what how often.

    facts.py   the tables, read from nnabla.csv and derivatives.csv beside it
    pages.py   the pages of the documentation that are made of them; `python -m nngrad.peers` writes these
"""

from .facts import PEERS, Place, capability, nnabla_names, peers_of, resolve
from .pages import pages

__all__ = ["PEERS", "Place", "capability", "nnabla_names", "pages", "peers_of", "resolve"]
