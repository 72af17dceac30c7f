"""Sends the bytes of a file to whoever connects, and nothing else: the peer of the fetch benchmark.

    python bench/plain_sender.py FILE        prints pid=PID port=PORT

For each connection the file once: `pread` of a piece, `send` of it, as a broker does that cannot use sendfile.
"""

from __future__ import annotations

import os
import socket
import sys

PIECE_SIZE_BYTES = 1 << 20


def main(path: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"pid={os.getpid()} port={listener.getsockname()[1]}", flush=True)
    file = os.open(path, os.O_RDONLY)
    while True:
        stream, _ = listener.accept()
        with stream:
            position = 0
            while piece := os.pread(file, PIECE_SIZE_BYTES, position):
                stream.sendall(piece)
                position += len(piece)


if __name__ == "__main__":
    main(sys.argv[1])
