"""What other libraries have: where the names of nnabla and Chainer are here, and who can differentiate what how often.

    facts.py          the tables, read from nnabla.csv and derivatives.csv beside it
    from_chainer.py   that of Chainer's functions, chainer.csv, and its page
    pages.py          the pages of the documentation that are made of them; `python -m nngrad.command.peers` writes them
"""

from .facts import PEERS, Place, capability, nnabla_names, peers_of, resolve
from .pages import pages

__all__ = ["PEERS", "Place", "capability", "nnabla_names", "pages", "peers_of", "resolve"]
