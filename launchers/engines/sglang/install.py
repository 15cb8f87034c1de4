"""An installed SGLang, asked through its own Python: version, flags, and what it makes of arguments."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from launchers.engines.probe import Answer, Probe
from launchers.engines.sglang.flags import Flags, flags_from_rows
from launchers.place import MACHINE, Place, Variables
from results.errors import UsageError

INSIDE = Path(__file__).with_name("inside.py")
# Flags of one release, for a plan on a machine that does not have the image: `inside.py` told them.
SNAPSHOT_VERSION = "0.5.23"
SNAPSHOT = Path(__file__).with_name("flags_0_5_23.json")
VERSION_CODE = "from importlib.metadata import version; print(version('sglang'))"


class Installation:
    """SGLang as the interpreter `server` of a Place has it."""

    def __init__(self, server: str, place: Place = MACHINE) -> None:
        self.place = place
        self._server = server or "python3"

    @cached_property
    def python(self) -> str:
        """Raises UsageError if there is no such program."""
        return self.place.program(self._server)

    @property
    def unasked(self) -> str:
        """What a plan rests on that could not ask; "" for one that did."""
        absent = self.place.absent
        return absent and f"{absent}; flags were checked against those of SGLang {SNAPSHOT_VERSION}"

    @cached_property
    def version(self) -> str:
        """Of the package, without importing it. Raises UsageError: no interpreter, no SGLang in it."""
        if self.place.absent:
            return SNAPSHOT_VERSION
        done = self.place.run([self.python, "-c", VERSION_CODE], {}, timeout_s=60)
        if done.exit_code != 0:
            raise UsageError(
                f"{self.python} has no SGLang: set `server` to the Python of the environment that has it"
            )
        return done.output.strip()

    @cached_property
    def flags(self) -> Flags:
        """The flags of the server's own parser. Raises UsageError if it cannot be asked."""
        if self.place.absent:
            return flags_from_rows(json.loads(SNAPSHOT.read_text("utf-8")))
        with self.probe({}) as probe:
            answer = probe.ask({"flags": True, "version": self.version})
        if "error" in answer:
            raise UsageError(
                f"SGLang {self.version} of {self.python} does not say its flags: {answer['error']}"
            )
        return flags_from_rows(answer["flags"])

    def probe(self, env: Variables) -> Probe:
        return Probe(self.place, self.python, INSIDE, env)


def resolved(probe: Probe, argv: Sequence[str]) -> Answer:
    """`{"resolved": {field: value}}` or `{"error": line}` for the arguments of a server."""
    return probe.ask({"argv": list(argv)})
