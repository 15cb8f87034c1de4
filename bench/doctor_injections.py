"""Faults put into the pair's head one at a time, and what `tuner doctor` makes of the running server.

    python -m bench.doctor_injections [--only NAME ...] [--verify] [--into FOLDER]

Prints the table of docs/doctor.md. Needs the rig `sglang` (make rigs); minutes for each fault.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.rigs.build import rig_python
from tests.rigs.injections import INJECTIONS, Injection
from tests.rigs.test_sglang import ARGS, ENV

PAIR = Path(__file__).parents[1] / "tests/rigs/pair"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=[*INJECTIONS], default=[*INJECTIONS])
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args()
    into = asked.into or Path(tempfile.mkdtemp(prefix="tuner-doctor-"))
    print("| injected | said | because | change | length, predicted | verified |\n|---|---|---|---|---|---|")
    for name in asked.only:
        print(examined(name, INJECTIONS[name], into / name, asked.verify), flush=True)


def examined(name: str, injection: Injection, into: Path, verify: bool) -> str:
    """A row of the table."""
    into.mkdir(parents=True)
    sweep = sweep_file(injection, into)
    command = [sys.executable, "tuner.py", "doctor", str(sweep), "--run", str(into / "run"), "--json"]
    command += ["--verify-fix"] * verify
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (into / "stdout").write_text(done.stdout)
    (into / "stderr").write_text(done.stderr)
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return f"| {injection.what} | exit code {done.returncode} | {done.stderr.strip()[-200:]} | | | |"
    return row(injection, told["conclusion"], told["verified"])


def row(injection: Injection, said: dict[str, Any], verified: dict[str, Any] | None) -> str:
    right = injection.outcome == said["outcome"] and (
        not injection.causes or set(said["causes"]) <= injection.causes
    )
    mark = "" if right else " (**not as injected**)"
    causes = ", ".join(said["causes"]) or said["sentence"]
    lengths = " -> ".join(
        f"{value:.2f}" for value in (said["accept_length"], said["accept_length_after"]) if value
    )
    fix = (said["fix"] or {}).get("words", "")
    measured = ""
    if verified is not None:
        measured = " -> ".join(tokens(verified[side]) for side in ("as_it_is", "changed"))
    named = f"{said['outcome']}{mark}: {causes}"
    cells = [injection.what, named, "; ".join(said["evidence"]), fix, lengths, measured]
    return f"| {' | '.join(cells)} |"


def tokens(accepted: dict[str, Any]) -> str:
    return f"{accepted['length']:.2f}" if accepted["length"] else str(accepted["failure"])


def sweep_file(injection: Injection, into: Path) -> Path:
    """What starts the pair's server with this fault."""
    sweep = {
        "name": "doctor",
        "engine": "sglang",
        "server": str(rig_python("sglang")),
        "model": str(PAIR / "target"),
        "draft": str(injection.make(into / "head")),
        "args": ARGS,
        "env": ENV,
        "space": {injection.method: {"num_steps": 3, "topk": 1}},
        "workload": {
            "files": [str(PAIR / "prompts.jsonl")],
            "endpoint": "completions",
            "classes": ["code"],
            "prompts_per_class": 8,
            "max_tokens": 64,
            "temperature": 0,
        },
        "pairing": "together",
        "patience": {"foreign_cores": 100},  # accepted drafts are counted, and no speed is concluded
    }
    file = into / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep, sort_keys=False))
    return file


if __name__ == "__main__":
    main()
