"""Ends one server when the process that started it is gone, however that process ended.

Run as a script with its standard input on a pipe from the starter, which writes the server's
process id and then only holds the pipe open. The pipe closes when the starter closes it or dies,
SIGKILL included: then the server is killed, by a pidfd, so never a stranger with the same number.

(The kernel's own "die with the parent", PR_SET_PDEATHSIG, follows the *thread* that started the
child: a server restarted from a test's helper thread would die with that thread.)
"""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Wait for the end of the starter, then kill the server."""
    line = sys.stdin.buffer.readline()
    if not line:
        return  # the starter ended before it had started a server
    with suppress(ProcessLookupError):  # the server has ended already
        server = os.pidfd_open(int(line))
        sys.stdin.buffer.read()
        signal.pidfd_send_signal(server, signal.SIGKILL)


if __name__ == "__main__":
    main()
