"""What is said of a change, by what the servers without and with it accepted."""

import pytest

from results.store import RunFolder
from sweeps.doctor.verify import Accepted, Verified, exit_code, lines

DEAD = Accepted(None, "CRASH_UNDER_LOAD: IndexError")


@pytest.mark.parametrize(
    ("before", "after", "code", "said"),
    [
        (Accepted(1.4), Accepted(3.1), 0, "The change raises what is accepted."),
        (Accepted(1.0, "BROKEN_DRAFTER: slot 0"), Accepted(1.5), 0, "The change raises what is accepted."),
        (DEAD, Accepted(3.1), 0, "The change raises what is accepted."),
        (DEAD, Accepted(1.0), 4, "The change does not raise what is accepted."),
        (Accepted(3.1), Accepted(3.11), 4, "The change does not raise what is accepted."),
        (Accepted(3.1), DEAD, 5, "What the change does could not be measured."),
    ],
)
def test_what_a_change_does(before: Accepted, after: Accepted, code: int, said: str) -> None:
    verified = Verified(before, after, None)
    assert exit_code(verified) == code
    assert list(lines(verified))[-1] == said


def test_each_side_is_told_with_what_went_wrong() -> None:
    told = list(lines(Verified(DEAD, Accepted(3.1), None, "A cannot be measured: IndexError")))
    assert told[:3] == [
        "Speed was not compared: A cannot be measured: IndexError",
        "as it is: CRASH_UNDER_LOAD: IndexError",
        "changed: 3.10 tokens a round",
    ]
    broken = Verified(Accepted(1.0, "BROKEN_DRAFTER: slot 0"), Accepted(None), RunFolder("run"))
    assert list(lines(broken))[:2] == [
        "as it is: 1.00 tokens a round; BROKEN_DRAFTER: slot 0",
        "changed: not measured",
    ]
