"""`nngrad follow`: the command."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import webbrowser
from pathlib import Path

from ..arguments import port
from ..outcome import complain
from .run_folder import RunFolder
from .serving import Server, serve_to_the_end

DESCRIPTION = ("Show a page that follows a run, or shows one that is finished: losses and what else is measured, and "
               "pictures. It reads what the run writes, metrics.csv and samples/, and changes nothing; the server "
               "listens on loopback, until Ctrl-C.")
_LINGER = 5.0
"""Seconds that pages have to read the end of a run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad follow`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the run, as in runs/gan")
    parser.add_argument("--port", type=port, default=0, metavar="N",
                        help="where to listen (default: a port that is free)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> int:
    """`nngrad follow`; returns the exit code."""
    if not given.beside and not given.folder.is_dir():
        complain(f"nngrad follow: {given.folder}: there is no such folder; give the --out of a run, as in runs/gan")
        return 1
    try:
        server = Server(RunFolder(given.folder), given.port)
    except OSError as error:
        complain(f"nngrad follow: port {given.port}: {error.strerror}; leave --port out, and one that is free is taken")
        return 1
    with server:
        if given.beside:
            _serve_beside(server)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                print(f"{given.folder}: {server.address}  (Ctrl-C ends it)", flush=True)
                if given.open:
                    webbrowser.open(server.address)
                server.serve_forever(poll_interval=0.2)
    return 0


def _serve_beside(server: Server) -> None:
    """Serve while standard input is open, which is as long as the training process lives."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the training; the server ends after it
    print(server.port, flush=True)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    serving.start()
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    serve_to_the_end(server, _LINGER)
    server.shutdown()
