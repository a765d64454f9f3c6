"""`nngrad follow`: a page that follows a run by reading the files that the run writes.

    run_folder.py   safe reading of the run's folder while the run writes to it
    serving.py      the server: loopback, read-only
    page.html       the page, without external resources
    command.py      the command
    beside.py       a process with the server, beside one that trains

It imports neither JAX nor nngrad, so it starts at once, and takes few resources from the training beside it.
"""
