"""The errors this project raises: each says who is at fault."""

from results.reasons import Reason


class UsageError(Exception):
    """The user asked for something impossible; the message says what to do (exit code 2)."""


class LaunchFailed(Exception):
    """A server did not come up as asked; `reason` is recorded with the Trial."""

    def __init__(self, reason: Reason, evidence: str) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason = reason
        self.evidence = evidence


class MeasurementInvalid(Exception):
    """A server ran, but what was measured must not be used; `reason` says why."""

    def __init__(self, reason: Reason, evidence: str) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason = reason
        self.evidence = evidence
