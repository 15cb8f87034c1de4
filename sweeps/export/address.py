"""The address that an exported server listens on."""

import ipaddress
import re

from results.errors import UsageError

LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # RFC 1123


def check_host(host: str) -> None:
    """Raises UsageError unless it is an IP address or the name of a machine."""
    if not (_is_ip(host) or _is_name(host)):
        raise UsageError(
            f"--host {host!r}: expected an address without scheme, port or spaces, e.g. 0.0.0.0, ::1 or"
            " a name such as gpu1.example.com"
        )


def published(host: str) -> str:
    """The host in front of a published port. Raises UsageError for a name, which Docker refuses there."""
    if not _is_ip(host):
        raise UsageError(f"--host {host}: the port of a container is published on an IP address, not a name")
    return f"[{host}]" if ":" in host else host


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host  # a zone is no part of what servers are told


def _is_name(host: str) -> bool:
    """Labels, the last of them no number: that would be a broken IPv4 address."""
    labels = host.split(".")
    return len(host) <= 253 and all(map(LABEL.fullmatch, labels)) and not labels[-1].isdigit()
