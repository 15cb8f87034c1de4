"""Ports for servers: free now, and none that a connection may be given before the server listens."""

import socket

import pytest

from launchers import port
from launchers.port import LOOPBACK, OURS, free_port, is_free


def test_a_port_is_free_and_of_ours() -> None:
    found = {free_port() for _ in range(20)}
    assert len(found) > 10  # those who choose at one moment choose differently
    assert all(p in OURS and is_free(p) for p in found)


def test_a_taken_one_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        number = taken.getsockname()[1]
        monkeypatch.setattr(port, "OURS", [number])
        monkeypatch.setattr(port, "TRIES", 1)
        assert free_port() not in (0, number)  # any other one, where all of ours are taken
