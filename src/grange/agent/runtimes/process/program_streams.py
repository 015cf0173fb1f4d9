"""Standard streams of programs: pipes or a terminal. For the shim, so it imports little.

The runtime opens those of commands with it, too, and passes the program's ends to the shim.
"""

import errno
import fcntl
import os
import struct
import termios

_CHUNK = 65536  # the capacity of a pipe
STDOUT, STDERR = "stdout", "stderr"


class Streams:
    """The program's ends.

    Args:
        descriptors: of standard input, output and error; one for all three is a terminal.

    Attributes:
        descriptors: open until ``close``.
    """

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors

    @property
    def is_terminal(self) -> bool:
        """Whether they are a terminal."""
        return len(self.descriptors) == 1

    def install(self) -> None:
        """In the program, which leads a session: make them its standard streams."""
        if self.is_terminal:
            fcntl.ioctl(self.descriptors[0], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate((self.descriptors * 3)[:3]):
            os.dup2(descriptor, number)

    def give_to(self, uid: int) -> None:
        """Let a user own the terminal, as its programs open it by name."""
        if self.is_terminal:
            os.fchown(self.descriptors[0], uid, -1)

    def close(self) -> None:
        """Close them, where another process has them."""
        while self.descriptors:
            os.close(self.descriptors.pop())


class Ends:
    """The other ends: what a program writes is read here, and its input written.

    Attributes:
        outputs: ``stdout`` or ``stderr`` by descriptor, not blocking.
        input: descriptor of the input or terminal; -1 for none.
    """

    def __init__(self, outputs: dict[int, str], given: int) -> None:
        self.outputs = outputs
        self.input = given
        for descriptor in {*outputs, given} - {-1}:
            os.set_blocking(descriptor, False)

    def close(self) -> None:
        """Close all of them; idempotent."""
        for descriptor in {*self.outputs, self.input} - {-1}:
            os.close(descriptor)
        self.outputs.clear()
        self.input = -1


def terminal() -> tuple[Streams, Ends]:
    """A new terminal."""
    ours, theirs = os.openpty()
    return Streams([theirs]), Ends({ours: STDOUT}, ours)


def pipes(*, stdin: bool, stdout: bool = True, stderr: bool = True) -> tuple[Streams, Ends]:
    """New pipes; ``/dev/null`` for what is not wanted.

    Raises:
        OSError: no descriptor is left; none is kept.
    """
    opened: list[int] = []
    try:
        theirs, ours = [], []
        for wanted, is_input in ((stdin, True), (stdout, False), (stderr, False)):
            if wanted:
                reading, writing = os.pipe2(os.O_CLOEXEC)
                opened += (reading, writing)
                theirs.append(reading if is_input else writing)
                ours.append(writing if is_input else reading)
            else:
                opened.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
                theirs.append(opened[-1])
                ours.append(-1)
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    named = zip(ours[1:], (STDOUT, STDERR), strict=True)
    return Streams(theirs), Ends({fd: name for fd, name in named if fd >= 0}, ours[0])


def read(descriptor: int, size: int = _CHUNK) -> bytes | None:
    """What is there; empty at the end, None when there is nothing now."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # nothing has the terminal any more
            return b""
        raise


def set_pipe_size(descriptor: int, size: int) -> None:
    """Let a pipe hold more or less than it usually does.

    Raises:
        OSError: it is more than the user may have.
    """
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, size)


def resize(descriptor: int, columns: int, rows: int) -> None:
    """Give a terminal a size; its foreground programs get SIGWINCH."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
