"""``grange`` of a shell: run it in a process forked from the warm one, with this process's streams.

Called as ``python -I -S warm_client.py SOCKET WORD...``, which starts in a few milliseconds.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Ask for a process, pass signals on to it, and end as it ended."""
    request = {"words": sys.argv[2:], "directory": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(sys.argv[1])
        socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2])
        pid = int(asking.recv(64))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda passed, _: os.kill(pid, passed))
        code = int(asking.recv(64))
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
