"""Listens at an address, or says why that is not possible: gRPC only says so in lines of its own, on stderr."""

import contextlib
import errno
import os
import socket
from pathlib import Path

import grpc

_LISTENING = "0A"


def listen_at(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Have a server that is yet to start listen at `host:port`, in plain text without credentials; return the port.

    Port 0 is any free one. Raises OSError with a sentence for people when it cannot.
    """
    host, _, number = address.rpartition(":")
    why_not = listen_error(host.strip("[]"), int(number))
    if why_not is not None:
        raise OSError(why_not)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if not port:
        raise OSError(f"cannot listen on {address}")
    return port


def listen_error(host: str, port: int) -> str | None:
    """Return why it is not possible to listen on `host`:`port` now, None when it is; port 0 is any free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen(1)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            return f'cannot listen on "{host}": it is no address of this machine; give one, or 0.0.0.0 for all of them'
        if error.errno == errno.EADDRINUSE:
            return f"port {port} is in use by {port_holder(port)}: stop that one, or choose another port"
        return f'cannot listen on "{host}", port {port}: {error.strerror}'
    return None


def port_holder(port: int) -> str:
    """Return `process 123 (its command)`, or `another process` if the system or missing rights hide which one."""
    inodes = _listening_inodes(port)
    for process in Path("/proc").glob("[0-9]*"):
        if inodes & _socket_inodes(process):
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            return f"process {process.name} ({command[:100]})"
    return "another process"


def _socket_inodes(process: Path) -> set[str]:
    """Return the inodes of a process's sockets; none when it has ended or belongs to somebody else."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for file in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, inode = os.readlink(file).partition(":")
                if kind == "socket":
                    found.add(inode.strip("[]"))
    return found


def _listening_inodes(port: int) -> set[str]:
    """Return the inodes of sockets that listen on a port; empty where there is no /proc."""
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found
