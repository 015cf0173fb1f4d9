"""Gives a server that listens on all addresses the address of its pod instead, without its knowing.

Run in the shim, so it imports little. The program is executed under a seccomp filter that stops it
at bind(2) and connect(2) and asks the shim (seccomp_unotify(2), kernel 5.9 and later, no rights needed).

For bind with the wildcard address and a fixed port the shim binds the program's own socket, which it gets
through pidfd_getfd(2), to the pod's address. So any number of replicas of an ordinary server have the
same port on one machine. The address is read from the program's memory once and used as it was read:
another thread that changes it meanwhile changes nothing. Port 0 is left alone: clients bind it before they
connect to other machines, which a loopback address cannot reach.

For connect to localhost, and a port that a program of the pod was bound to in this way, the shim writes
the pod's address over the one in the program's memory, and the program connects to it. So containers of the
pod, probes and ``exec`` find the server at localhost, as in Kubernetes, and what else listens on the
machine's localhost is found there. The program connects by itself because only then a socket that
blocks, or does not, stays so. Each container has a shim, so the ports are files of the pod; asking the
kernel who listens takes milliseconds where there are many sockets.

In all other cases the program goes on as if it had not been stopped.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
from typing import NamedTuple

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_PIDFD_GETFD = 438
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_ARCHITECTURE_AT, _NUMBER_AT = 4, 0
# By machine: the architecture as the kernel states it, and the numbers of bind, connect and seccomp.
_MACHINES = {"x86_64": (0xC000003E, 49, 42, 317), "aarch64": (0xC00000B7, 200, 203, 277)}
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_INSTRUCTION = struct.Struct("=HBBI")
_ADDRESS_MAX = 128
_PROBE_LIMIT_MS = 5000
_PROBED = "127.0.0.2"
_KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
_FAMILY = struct.Struct("=H")
_PORT = struct.Struct("!H")
_V4, _V6 = struct.Struct("!H4s"), struct.Struct("!HI16s")
_V4_HOST_AT, _V6_HOST_AT = 4, 8
_MAPPED = bytes(10) + b"\xff\xff"  # before an address of IPv4 in one of IPv6
_LOCALHOST = {bytes(4), bytes((127, 0, 0, 1))}
_LOCALHOST_V6 = {bytes(16), bytes(15) + b"\x01", *(_MAPPED + host for host in _LOCALHOST)}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install() -> int:
    """Let this process ask before it binds or connects; it and its children cannot get rid of that.

    Returns:
        The descriptor at which to answer.

    Raises:
        OSError: the kernel does not know how.
    """
    architecture, bind, connect, seccomp = _MACHINES.get(os.uname().machine, (0, 0, 0, 0))
    if not seccomp:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    code = b"".join(
        _INSTRUCTION.pack(*instruction)
        for instruction in (
            (_LOAD, 0, 0, _ARCHITECTURE_AT),
            (_EQUAL, 0, 4, architecture),
            (_LOAD, 0, 0, _NUMBER_AT),
            (_EQUAL, 1, 0, bind),
            (_EQUAL, 0, 1, connect),
            (_RETURN, 0, 0, _ASK),
            (_RETURN, 0, 0, _ALLOW),
        )
    )
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    program = _Program(len(code) // _INSTRUCTION.size, code)
    listener = int(
        _libc.syscall(seccomp, _SECCOMP_SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    )
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def probe() -> int:
    """Let a child bind a socket, and answer it.

    Returns:
        The errno of what the kernel does not allow; zero where the child has the address.
    """
    here, there = socket.socketpair()
    with here, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        try:
            taken.bind(("127.0.0.1", 0))  # its port is not free on all addresses
        except OSError as error:  # a filter around this program
            return error.errno or errno.EINVAL
        child = os.fork()
        if child == 0:
            _try_to_bind(there, taken.getsockname()[1])
        there.close()
        try:
            return _answer_probe(here)
        finally:
            with contextlib.suppress(ChildProcessError):  # the launcher's are reaped by the kernel
                os.waitpid(child, 0)


def _try_to_bind(report: socket.socket, port: int) -> None:
    """In the child of a probe; never returns."""
    number = errno.EINVAL
    try:
        listener = install()
        socket.send_fds(report, [b"filter"], [listener])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.bind(("", port))
        number = 0
    except OSError as error:
        number = error.errno or number
    finally:
        report.send(str(number).encode())
        os._exit(0)


def _answer_probe(reports: socket.socket) -> int:
    message, listeners, _, _ = socket.recv_fds(reports, _ADDRESS_MAX, 1)
    if not listeners:
        return int(message)
    poll = select.poll()
    poll.register(listeners[0], select.POLLIN)
    try:
        if not poll.poll(_PROBE_LIMIT_MS):
            return errno.ETIMEDOUT  # and the child ends: what it waits for is closed
        answer(listeners[0], _PROBED, os.devnull)  # where no file can be made
    finally:
        os.close(listeners[0])
    return int(reports.recv(_ADDRESS_MAX))


def answer(listener: int, address: str, ports: str) -> None:
    """Answer one program that waits at bind or connect.

    Args:
        listener: readable descriptor of ``install``.
        address: IPv4 address of the pod.
        ports: directory of the files that show which ports of it are bound; made when it is needed.
    """
    notification = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, notification)
    except OSError:
        return  # it was killed meanwhile
    number, pid, _, called, _, _, *arguments = _NOTIFICATION.unpack(notification)[:9]
    is_bind = called == _MACHINES[os.uname().machine][1]
    act, mode = (_bind, os.O_RDONLY) if is_bind else (_redirect, os.O_RDWR)
    descriptor, place, length = arguments
    try:
        memory = os.open(f"/proc/{pid}/mem", mode | os.O_CLOEXEC)
        try:
            # From here on pid and memory are those of the process that asks.
            fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", number))
            wanted = os.pread(memory, min(length, _ADDRESS_MAX), place)
            call = _Call(listener, number, pid, descriptor, place, memory)
            error = act(call, wanted, address, ports)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        error = None  # it cannot be looked into, or the address is no place: it goes on as it is
    flags = _CONTINUE if error is None else 0
    response = _RESPONSE.pack(number, 0, -(error or 0), flags)
    try:
        fcntl.ioctl(listener, _SEND, response)
    except OSError:
        return  # it was killed meanwhile


class _Call(NamedTuple):
    """A call that a program waits at.

    Attributes:
        listener: where it is answered.
        number: of the notification.
        thread: id of the thread that waits.
        descriptor: its socket.
        place: of the address in its memory.
        memory: descriptor of the program's memory.
    """

    listener: int
    number: int
    thread: int
    descriptor: int
    place: int
    memory: int

    def socket(self) -> socket.socket | None:
        """The program's own socket; None without one.

        Raises:
            OSError: the program has gone, or it is no socket.
        """
        process = os.pidfd_open(_process_of(self.thread))
        try:
            # From here on the pidfd is that of the process that asks.
            fcntl.ioctl(self.listener, _IS_VALID, struct.pack("=Q", self.number))
            taken = int(_libc.syscall(_PIDFD_GETFD, process, self.descriptor, 0))
        finally:
            os.close(process)
        if taken < 0:
            return None
        try:
            return socket.socket(fileno=taken)
        except OSError:
            os.close(taken)
            raise


def _process_of(thread: int) -> int:
    with open(f"/proc/{thread}/status", "rb") as status:
        return next(int(line[5:]) for line in status if line.startswith(b"Tgid:"))


def _bind(call: _Call, wanted: bytes, address: str, ports: str) -> int | None:
    """Bind the socket to the pod's address; answers with an errno, 0 for done, None for not ours."""
    if not is_wildcard(wanted):
        return None
    found = call.socket()
    if found is None:
        return None
    with found:
        error = _bind_socket(found, wanted, address)
        if error == 0:
            _note(ports, found.type, wanted)
    return error


def _note(ports: str, kind: int, wanted: bytes) -> None:
    (port,) = _PORT.unpack_from(wanted, _FAMILY.size)
    # Without the file, on a full disk, the server runs and is not found at localhost.
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            os.mkdir(ports, 0o700)
        # The program may write here, too: what it put here is neither followed nor opened.
        directory = os.open(ports, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
            os.close(os.open(_mark(kind, port), flags, 0o600, dir_fd=directory))
        finally:
            os.close(directory)


def _redirect(call: _Call, wanted: bytes, address: str, ports: str) -> None:
    """Put the pod's address in the place of localhost if a program of the pod has the port.

    The files are looked at before the socket is taken, because most connects are to what the pod does not
    serve. A program that binds the port in between is not found, as if the connect had come before.
    """
    port = localhost_port(wanted)
    if not port:
        return
    kinds = [kind for kind in _KINDS if os.path.exists(os.path.join(ports, _mark(kind, port)))]
    found = call.socket() if kinds else None
    if found is None:
        return
    with found:
        if found.type not in kinds:
            return
        (family,) = _FAMILY.unpack_from(wanted)  # that of the socket may be another one
        if family == socket.AF_INET:
            place, host = call.place + _V4_HOST_AT, socket.inet_aton(address)
        elif found.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            return  # the pod has no address of IPv6
        else:
            place, host = call.place + _V6_HOST_AT, _MAPPED + socket.inet_aton(address)
    os.pwrite(call.memory, host, place)


def localhost_port(wanted: bytes) -> int:
    """The port of an address of localhost, wildcards included; 0 for all others."""
    if len(wanted) < _FAMILY.size:
        return 0
    (family,) = _FAMILY.unpack_from(wanted)
    port, is_local = 0, False
    if family == socket.AF_INET and len(wanted) >= 2 + _V4.size:
        port, host = _V4.unpack_from(wanted, 2)
        is_local = host in _LOCALHOST
    elif family == socket.AF_INET6 and len(wanted) >= 2 + _V6.size:
        port, _, host = _V6.unpack_from(wanted, 2)
        is_local = host in _LOCALHOST_V6
    return port if is_local else 0


def _mark(kind: int, port: int) -> str:
    """Name of the file that shows that a program of the pod has bound the port."""
    return f"{kind}-{port}"


def is_wildcard(wanted: bytes) -> bool:
    """Whether it is the wildcard address of IPv4 or IPv6 with a fixed port."""
    if len(wanted) < _FAMILY.size:
        return False
    (family,) = _FAMILY.unpack_from(wanted)
    if family == socket.AF_INET and len(wanted) >= 2 + _V4.size:
        port, host = _V4.unpack_from(wanted, 2)
        return port != 0 and not any(host)
    if family == socket.AF_INET6 and len(wanted) >= 2 + _V6.size:
        port, _, host = _V6.unpack_from(wanted, 2)
        return port != 0 and not any(host)
    return False


def _bind_socket(found: socket.socket, wanted: bytes, address: str) -> int | None:
    (port,) = _PORT.unpack_from(wanted, _FAMILY.size)
    try:
        if found.family == socket.AF_INET:
            found.bind((address, port))
        elif found.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            return None  # the pod has no address of IPv6
        else:
            found.bind((f"::ffff:{address}", port))
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0
