"""TCP ports on loopback: a free one, and who listens on a taken one."""

import random
import socket
from typing import Any

import psutil

from results.errors import UsageError

LOOPBACK = "127.0.0.1"
OURS = range(
    20_000, 30_000
)  # below what Linux and macOS give to connections, and below Kubernetes' node ports
TRIES = 20
_chance = random.SystemRandom()


def free_port(host: str = LOOPBACK) -> int:
    """A port nobody listens on at this address now; another process may take it before it is used.

    A server binds it when its model is loaded, minutes later: so it is none that the system gives to
    outgoing connections, and one of many for those who choose at the same moment.
    """
    for port in _chance.sample(OURS, TRIES):
        if _binds(host, port):
            return port
    return _any_port(host)


def _binds(host: str, port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def _any_port(host: str) -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as sock:
        # Without this, connections of a server that just ended would still block its port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def listener_pid(port: int) -> int | None:
    """The process listening on the port; None if there is none, or if it may not be seen."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    return next((c.pid for c in connections if c.pid and _listens_on(c, port)), None)


def listens(pid: int, port: int) -> bool:
    """Whether this process listens on the port; False if it is gone."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(_listens_on(connection, port) for connection in connections)


def _listens_on(connection: Any, port: int) -> bool:
    return bool(connection.status == psutil.CONN_LISTEN and connection.laddr.port == port)


def refuse_if_taken(port: int) -> None:
    """Raises UsageError that names who listens on the port."""
    if not is_free(port):
        raise UsageError(f"port {port} is taken by {_holder(port)}: stop it or choose another port")


def _holder(port: int) -> str:
    pid = listener_pid(port)
    if pid is None:
        return "a process this user may not see"
    try:
        return f"pid {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"pid {pid}"
