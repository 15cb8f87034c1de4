"""The ready workflows for GitHub and GitLab: linted by real tools, and their shell steps run for real."""

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.nightly.workflow import (
    BRANCH,
    EXAMPLES,
    GitHubRun,
    GitLabRun,
    Run,
    history,
    load,
    programs,
    remote,
)
from tests.exported import program, ran

GITHUB, GITLAB = EXAMPLES / "github.yml", EXAMPLES / "gitlab.yml"
# Actions pinned by their major version: a hash would be old by the time somebody copies the file.
ZIZMOR = "rules:\n  unpinned-uses:\n    config:\n      policies:\n        '*': ref-pin\n"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    remote(tmp_path / "server")
    return tmp_path / "server"


@pytest.fixture
def start(tmp_path: Path, server: Path) -> Callable[..., Any]:
    """Call with the class of a run and its name: a run in a workspace of its own."""
    path = programs(tmp_path / "bin")

    def started(kind: type[Run], name: str = "one", **options: Any) -> Run:
        return kind(tmp_path / name, server, path, **options)

    return started


def bare_of(server: Path) -> Path:
    return server / "me" / "models.git"


class TestLint:
    @pytest.mark.parametrize(
        ("file", "schema"),
        [
            (GITHUB, ("vendor.github-workflows",)),
            (GITHUB, ("custom.github-workflows-require-timeout",)),
            (GITLAB, ("vendor.gitlab-ci", "--data-transform", "gitlab-ci")),
        ],
    )
    def test_the_schema_of_the_vendor(self, file: Path, schema: tuple[str, ...]) -> None:
        assert "ok" in ran(program("check-jsonschema"), "--builtin-schema", *schema, file)

    def test_the_schema_refuses_a_misspelt_key(self, tmp_path: Path) -> None:
        wrong = tmp_path / "wrong.yml"
        wrong.write_text(GITHUB.read_text("utf-8").replace("runs-on:", "run-on:"), "utf-8")
        command = [program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(wrong)]
        assert subprocess.run(command, capture_output=True, check=False).returncode

    def test_zizmor_finds_nothing(self, tmp_path: Path) -> None:
        """Templates in scripts, credentials that stay, permissions too wide, caches to poison."""
        config = tmp_path / "zizmor.yml"
        config.write_text(ZIZMOR, "utf-8")
        ran(program("zizmor"), "--offline", "--no-progress", "--persona=pedantic", "--config", config, GITHUB)

    @pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
    def test_shellcheck_finds_nothing(self, name: str, tmp_path: Path) -> None:
        if name == "github.yml":
            scripts = [s["run"] for s in load(name)["jobs"]["check"]["steps"] if "run" in s]
        else:  # one shell runs both
            job = load(name)["tuner-check"]
            scripts = ["\n".join([*job["before_script"], *job["script"]])]
        for script in scripts:
            file = tmp_path / "script.sh"
            file.write_text(f"#!/bin/bash\nset -eo pipefail\n{script}", "utf-8")
            # The token is meant to be read by git, later; a failing cd ends the script by -e.
            ran(program("shellcheck"), "--exclude=SC2016,SC2103,SC2164", file)

    def test_actions_are_pinned_and_nothing_of_an_event_is_in_a_script(self) -> None:
        steps = load("github.yml")["jobs"]["check"]["steps"]
        assert all(s["uses"].rpartition("@")[2].startswith("v") for s in steps if "uses" in s)
        assert not any("${{" in s["run"] for s in steps if "run" in s)

    def test_the_servers_under_test_never_see_the_token(self) -> None:
        job = load("github.yml")["jobs"]["check"]
        (checkout,) = (s for s in job["steps"] if "checkout" in s.get("uses", ""))
        assert checkout["with"]["persist-credentials"] is False
        given = [s["name"] for s in job["steps"] if "github.token" in str(s.get("env"))]
        assert given == ["Fetch the history", "Push the history"]
        assert (load("github.yml")["permissions"], job["permissions"]) == ({}, {"contents": "write"})

    def test_no_two_nights_on_one_gpu(self) -> None:
        assert load("github.yml")["concurrency"] == {"group": "tuner-nightly", "cancel-in-progress": False}
        assert load("gitlab.yml")["tuner-check"]["resource_group"] == "tuner-nightly"

    def test_artifacts_are_kept_whatever_came_of_the_night(self) -> None:
        (upload,) = (s for s in load("github.yml")["jobs"]["check"]["steps"] if "upload" in s.get("uses", ""))
        assert upload["if"] == "always()"
        assert load("gitlab.yml")["tuner-check"]["artifacts"]["when"] == "always"


class TestGitHub:
    @pytest.mark.parametrize(
        ("code", "job"), [(0, "success"), (4, "success"), (3, "failure"), (5, "failure")]
    )
    def test_the_night_is_pushed_and_the_job_ends_right(
        self, code: int, job: str, start: Callable[..., GitHubRun], server: Path
    ) -> None:
        run = start(GitHubRun, code=code)
        assert run.all() == job, run.output
        assert history(bare_of(server)) == ['{"id": "night of one", "machine": "gpu-box-1"}']
        assert (run.folder / "trend.html").read_text("utf-8").strip() == "1"
        assert (run.folder / "summary.md").exists()

    def test_a_usage_error_fails_and_pushes_nothing(
        self, start: Callable[..., GitHubRun], server: Path
    ) -> None:
        assert start(GitHubRun, code=2).all() == "failure"
        assert history(bare_of(server)) == []

    def test_nights_add_up_also_in_the_same_workspace(
        self, start: Callable[..., GitHubRun], server: Path
    ) -> None:
        """A self-hosted runner keeps its folder."""
        for _ in range(3):
            assert start(GitHubRun, "same").all() == "success"
        assert len(history(bare_of(server))) == 3

    @pytest.mark.parametrize("before", [0, 1])
    def test_a_rejected_push_is_merged(
        self, before: int, start: Callable[..., GitHubRun], server: Path
    ) -> None:
        """Another machine pushes while this one measures; once as the very first nights of both."""
        for _ in range(before):
            start(GitHubRun, "earlier").all()
        slow = start(GitHubRun, "slow", code=3)
        slow.step("Fetch the history")
        slow.step("Check")
        assert start(GitHubRun, "quick", machine="gpu-box-2").all() == "success"
        slow.step("Push the history")
        assert slow.outcomes == {"history": "success", "Check": "failure", "Push the history": "success"}
        names = [line.split('"')[3] for line in history(bare_of(server))]
        assert sorted(names) == sorted([*["night of earlier"] * before, "night of quick", "night of slow"])

    def test_two_that_push_at_once_lose_nothing(self, start: Callable[..., GitHubRun], server: Path) -> None:
        runs = [start(GitHubRun, f"machine-{n}") for n in range(4)]
        with ThreadPoolExecutor(len(runs)) as pool:
            assert list(pool.map(GitHubRun.all, runs)) == ["success"] * len(runs)
        assert len(set(history(bare_of(server)))) == len(runs)

    def test_a_server_that_is_not_reached_is_no_first_night(
        self, start: Callable[..., GitHubRun], server: Path
    ) -> None:
        """Else the history would begin anew, and every night be one of too few."""
        (server / "me").rename(server / "gone")
        run = start(GitHubRun)
        assert run.all() == "failure"
        assert run.outcomes["history"] == "failure"
        assert run.outcomes["Check"] == run.outcomes["Push the history"] == "skipped"

    def test_a_night_that_cannot_be_pushed_fails_the_job(
        self, start: Callable[..., GitHubRun], server: Path
    ) -> None:
        refuses(bare_of(server))
        run = start(GitHubRun)
        assert run.all() == "failure"
        assert run.outcomes["Check"] == "success"
        assert "it is in the artifact of this run" in run.output

    def test_no_token_is_left_in_the_workspace(self, start: Callable[..., GitHubRun]) -> None:
        run = start(GitHubRun)
        run.all()
        assert "GH_TOKEN" in (run.folder / "history/.git/config").read_text("utf-8")
        found = [f for f in run.folder.rglob("*") if f.is_file() and b"=token" in f.read_bytes()]
        assert found == []


class TestGitLab:
    @pytest.mark.parametrize("code", [0, 3, 4, 5])
    def test_the_night_is_pushed_and_the_job_ends_right(
        self, code: int, start: Callable[..., GitLabRun], server: Path
    ) -> None:
        run = start(GitLabRun, code=code)
        assert run.all() == code, run.output
        assert history(bare_of(server)) == ['{"id": "night of one", "machine": "gpu-box-1"}']
        assert (run.folder / "trend.html").read_text("utf-8").strip() == "1"

    def test_too_few_nights_pass_with_a_warning_and_nothing_else_does(self) -> None:
        assert load("gitlab.yml")["tuner-check"]["allow_failure"] == {"exit_codes": 4}

    def test_a_usage_error_fails_and_pushes_nothing(
        self, start: Callable[..., GitLabRun], server: Path
    ) -> None:
        assert start(GitLabRun, code=2).all() == 2
        assert history(bare_of(server)) == []

    def test_two_that_push_at_once_lose_nothing(self, start: Callable[..., GitLabRun], server: Path) -> None:
        runs = [start(GitLabRun, f"machine-{n}") for n in range(4)]
        with ThreadPoolExecutor(len(runs)) as pool:
            assert list(pool.map(GitLabRun.all, runs)) == [0] * len(runs)
        assert len(set(history(bare_of(server)))) == len(runs)

    def test_no_push_starts_a_pipeline(self, start: Callable[..., GitLabRun], server: Path) -> None:
        start(GitLabRun).all()
        subject = ran("git", "-C", bare_of(server), "log", "-1", "--format=%s", BRANCH)
        assert subject.strip().endswith("on gpu-box-1 [skip ci]")

    def test_a_server_that_is_not_reached_is_no_first_night(
        self, start: Callable[..., GitLabRun], server: Path
    ) -> None:
        (server / "me").rename(server / "gone")
        run = start(GitLabRun)
        assert run.all() == 128
        assert not (run.folder / "check.xml").exists()

    @pytest.mark.parametrize(("code", "ends"), [(0, 5), (4, 5), (3, 3)])
    def test_a_night_that_cannot_be_pushed_fails_the_job(
        self, code: int, ends: int, start: Callable[..., GitLabRun], server: Path
    ) -> None:
        refuses(bare_of(server))
        assert start(GitLabRun, code=code).all() == ends


def refuses(bare: Path) -> None:
    """A server that takes no push."""
    hook = bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    hook.chmod(0o755)
