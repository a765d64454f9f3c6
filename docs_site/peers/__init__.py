"""Pages made of facts about other libraries: where nnabla's and Chainer's names are here, how often each function can
be differentiated where, and what becomes of JAX's primitives.

    facts.py          the tables of names
    from_chainer.py   Chainer's functions, chainer.csv, and their page
    differentiable.py how often others can differentiate their functions
    primitives.py     JAX's primitives, primitives.csv
    pages.py          the pages; `python -m docs_site.peers` writes them
"""
