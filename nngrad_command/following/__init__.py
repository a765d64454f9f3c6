"""`nngrad follow`: a page that follows a run by reading what the run writes.

    run_folder.py   what of the folder may be read, and how, while somebody writes to it
    serving.py      the server: loopback, reading only
    page.html       the page, without anything from elsewhere
    command.py      the command
    beside.py       a process with the server, beside one that trains

It imports neither JAX nor nngrad, so that it is there at once, and takes nothing from the training beside it.
"""
