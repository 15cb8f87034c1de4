"""Processes as the driver counts them."""

import os

from launchers.gpu_processes import are_of_this_namespace


def test_a_pid_that_no_system_has_is_not_of_this_one() -> None:
    """The driver's numbers are unsigned, and its greatest one stands for no answer."""
    assert are_of_this_namespace(frozenset({os.getpid()}))
    assert not are_of_this_namespace(frozenset({os.getpid(), 2**32 - 1}))
    assert not are_of_this_namespace(frozenset())
