"""`python -m tests.several_hosts.launching N [-m] SCRIPT ...`: run a script in N processes, which `nn.hosts` joins.

Each line has the number of its process before it. When one fails, the others are killed, and its exit code is returned.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from typing import IO


def pass_on(index: int, pipe: IO[str], out: IO[str]) -> None:
    for line in pipe:
        out.write(f"[{index}] {line}")
        out.flush()


def main(count: int, *arguments: str) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {**os.environ, "JAX_COORDINATOR_ADDRESS": address, "NNGRAD_PROCESS_COUNT": str(count)}
    processes, readers = [], []
    for index in range(count):
        process = subprocess.Popen([sys.executable, "-u", *arguments], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={**settings, "NNGRAD_PROCESS_INDEX": str(index)})
        processes.append(process)
        for pipe, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert pipe is not None
            readers.append(threading.Thread(target=pass_on, args=(index, pipe, out)))
            readers[-1].start()
    codes: list[int | None] = [None]
    while None in codes and not any(codes):
        codes = [process.poll() for process in processes]
        time.sleep(0.02)
    for process in processes:
        process.kill()
    for reader in readers:
        reader.join()
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
