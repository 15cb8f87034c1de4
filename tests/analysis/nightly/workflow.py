"""Runs the shell steps of the example workflows for real, as a runner of GitHub or GitLab would.

The remote is a bare repository in a folder, and `tuner` is a stub on the PATH that records a night.
"""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[3] / "examples" / "ci"
BRANCH = "tuner-history"
# Records a night as `tuner check` does, one line, and ends as it is told; a usage error records nothing.
_STUB = """#!/bin/bash
set -eu
command=$1
shift
while [ $# -gt 0 ]; do
  case $1 in
    --history) history=$2 ;;
    --machine) machine=$2 ;;
    --junit) junit=$2 ;;
    --summary) summary=$2 ;;
    -o) drawn=$2 ;;
  esac
  shift
done
if [ "$command" = report ]; then
  wc -l < "$history/nights.jsonl" > "$drawn"
  exit
fi
[ -z "${GH_TOKEN:-}" ] || exit 99 # the servers under test would see the token
if [ "$STUB_CODE" != 2 ]; then
  printf '{"id": "%s", "machine": "%s"}\\n' "$NIGHT" "$machine" >> "$history/nights.jsonl"
fi
echo "<testsuites/>" > "$junit"
echo "## Night" >> "$summary"
exit "$STUB_CODE"
"""


def load(name: str) -> dict[Any, Any]:
    found = yaml.safe_load((EXAMPLES / name).read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def programs(folder: Path) -> Path:
    """`tuner`, and a `sleep` that does not."""
    folder.mkdir()
    for name, text in (("tuner", _STUB), ("sleep", "#!/bin/sh\n")):
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod(0o755)
    return folder


def remote(folder: Path) -> Path:
    """A bare repository `me/models.git` in a folder that stands for the server."""
    bare = folder / "me" / "models.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(bare)], check=True)
    return bare


def history(bare: Path) -> list[str]:
    """The lines that were pushed; empty without the branch."""
    command = ["git", "-C", str(bare), "show", f"{BRANCH}:nights.jsonl"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


@dataclass
class Run:
    """One run on one machine, step by step."""

    folder: Path  # its workspace
    server: Path  # where `me/models.git` is
    path: Path  # the programs
    machine: str = "gpu-box-1"
    code: int = 0  # of `tuner check`
    outcomes: dict[str, str] = field(default_factory=dict)
    output: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """Nothing of the machine's but the PATH: no identity, no credentials."""
        return {
            "PATH": f"{self.path}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "STUB_CODE": str(self.code),
            "NIGHT": f"night of {self.folder.name}",
        }

    def bash(self, script: str, extra: dict[str, str]) -> int:
        """As GitHub starts `shell: bash`, and GitLab its bash."""
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env={**self.environment(), **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.output += done.stdout + done.stderr
        return done.returncode


class GitHubRun(Run):
    """Steps by name; whether one is run is decided by its `if`, as far as the example uses it."""

    def steps(self) -> list[dict[str, Any]]:
        return [step for step in load("github.yml")["jobs"]["check"]["steps"] if "run" in step]

    def step(self, name: str) -> None:
        step = next(s for s in self.steps() if s["name"] == name)
        if not self._wanted(step.get("if", "success()")):
            self.outcomes[step.get("id", name)] = "skipped"
            return
        values = {k: v.replace("${{ github.token }}", "token") for k, v in step.get("env", {}).items()}
        extra = {
            **load("github.yml")["env"],
            "GITHUB_SERVER_URL": self.server.as_uri(),
            "GITHUB_REPOSITORY": "me/models",
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "RUNNER_NAME": self.machine,
            **values,
        }
        failed = self.bash(step["run"], extra)
        conclusion = "continued" if step.get("continue-on-error") else "failure"
        self.outcomes[step.get("id", name)] = conclusion if failed else "success"

    def _wanted(self, condition: str) -> bool:
        if condition == "success()":
            return "failure" not in self.outcomes.values()
        assert condition == "always() && steps.history.outcome == 'success'"
        return self.outcomes["history"] == "success"

    def all(self) -> str:
        """Conclusion of the job."""
        for step in self.steps():
            self.step(step["name"])
        return "failure" if "failure" in self.outcomes.values() else "success"


class GitLabRun(Run):
    def all(self) -> int:
        """Exit code of the job."""
        job = load("gitlab.yml")["tuner-check"]
        extra = {
            **job["variables"],
            "CI_SERVER_URL": self.server.as_uri(),
            "CI_SERVER_HOST": "gitlab.example",
            "CI_PROJECT_PATH": "me/models",
            "CI_RUNNER_DESCRIPTION": self.machine,
            "CI_JOB_TOKEN": "token",
        }
        return self.bash("\n".join([*job["before_script"], *job["script"]]), extra)
