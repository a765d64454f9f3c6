"""Parts of pages that are made of facts about other libraries; `python -m docs_site.peers` writes them."""
