"""Servers in real containers: how they end, what they log, what they see, and that none is left."""

import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from launchers.containers.command import create_arguments, docker_run_words
from launchers.containers.daemon import connect
from launchers.containers.image import Image, ensure_image
from launchers.containers.launcher import ContainerEndpoint, DockerLauncher
from launchers.containers.options import ContainerOptions
from launchers.launcher import Launch, Launcher
from launchers.port import free_port, is_free
from results.errors import UsageError
from tests.contracts.launcher_contract import LauncherContract
from tests.rigs.needed import needed_image
from tests.rigs.registry import registry
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]

LISTEN = "import socket, sys, time; s = socket.create_server((sys.argv[2], int(sys.argv[1]))); "
SLEEP = "print('up', flush=True); time.sleep(600)"

SMALL = {"shm_size": "64m", "ulimits": {}}  # what every daemon can give


@pytest.fixture(scope="module")
def image() -> str:
    return needed_image()


@pytest.fixture(scope="module")
def client(image: str) -> Any:
    return connect()


class Containers:
    """Launchers of one run folder, and Launches of small Python programs."""

    def __init__(self, client: Any, image: str, folder: Path) -> None:
        self.client = client
        self.image = image
        self.folder = folder

    def options(self, **more: Any) -> ContainerOptions:
        return ContainerOptions(self.image, **{**SMALL, **more})

    def launcher(self, **more: Any) -> DockerLauncher:
        options = self.options(**more)
        place = self.place(options)
        return DockerLauncher(self.folder, self.client, options, lambda image: place)

    def place(self, options: ContainerOptions) -> Image:
        return Image(self.client, self.image, ensure_image(self.client, self.image), options)

    def launch(
        self,
        code: str,
        port: int = 0,
        host: str = "127.0.0.1",
        env: Mapping[str, str | None] | None = None,
    ) -> Launch:
        port = port or free_port()
        argv = ("/usr/bin/python3", "-S", "-c", code, str(port), host)
        return Launch(argv, port, self.folder / "logs" / f"{port}.log", env or {})

    def left(self) -> list[Any]:
        found: list[Any] = self.client.containers.list(
            all=True, filters={"label": f"tuner.run={self.folder.resolve()}"}
        )
        return found


@pytest.fixture
def containers(client: Any, image: str, tmp_path: Path) -> Iterator[Containers]:
    found = Containers(client, image, tmp_path)
    yield found
    assert found.left() == []


@pytest.mark.parametrize("network", ["host", "bridge"])
class TestDockerLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self, containers: Containers, network: str) -> Launcher:
        return containers.launcher(network=network)

    @pytest.fixture
    def launch(self, containers: Containers, network: str) -> Callable[[int], Launch]:
        host = "127.0.0.1" if network == "host" else "0.0.0.0"
        return lambda port: containers.launch(LISTEN + SLEEP, port, host)


def ended(containers: Containers, code: str, **more: Any) -> ContainerEndpoint:
    """The endpoint of a program that has ended by itself."""
    with containers.launcher(**more).start(containers.launch(code)) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
    return endpoint


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("raise SystemExit(3)", 3),
        ("pass", 0),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    ],
)
def test_exit_code_reaches_the_tool(containers: Containers, code: str, exit_code: int) -> None:
    endpoint = ended(containers, code)
    assert endpoint.exit_code() == exit_code
    assert endpoint.killed_for_memory() is None
    assert endpoint.ended_from_outside() is None


def test_log_has_every_line_of_both_streams(containers: Containers) -> None:
    code = "import sys\nfor i in range(3000): print('out', i); print('err', i, file=sys.stderr)"
    lines = ended(containers, code).log_path.read_text().splitlines()
    for stream in ("out", "err"):
        assert [line for line in lines if line.startswith(stream)] == [f"{stream} {i}" for i in range(3000)]
    assert len(lines) == 6000


def test_the_last_line_is_there_when_the_exit_code_is(containers: Containers) -> None:
    for number in range(5):
        endpoint = ended(containers, f"print('x' * 100000); print('the end {number}')")
        assert endpoint.log_path.read_text().splitlines()[-1] == f"the end {number}"


def test_a_line_is_in_the_log_when_its_answer_is_there(containers: Containers) -> None:
    """Engines count drafts in their logs right after a reply."""
    code = (
        "import sys, time\nfrom http.server import *\n"
        "class H(BaseHTTPRequestHandler):\n"
        "  def do_GET(self):\n"
        "    print('answered', self.path, flush=True)\n"
        "    self.send_response(200); self.end_headers()\n"
        "  def log_message(self, *_): pass\n"
        "HTTPServer((sys.argv[2], int(sys.argv[1])), H).serve_forever()\n"
    )
    import requests

    launch = containers.launch(code)
    with containers.launcher().start(launch) as endpoint:
        wait_for(lambda: not is_free(launch.port))
        for number in range(20):
            requests.get(f"{endpoint.base_url}/{number}", timeout=10)
            assert endpoint.log_path.read_text().splitlines()[-1] == f"answered /{number}"


def test_environment_is_the_servers_own(containers: Containers) -> None:
    env = {"NCCL_PROTO": "LL128", "FROM_IMAGE": None, "NOT_OF_IMAGE": None}
    launch = containers.launch(LISTEN + SLEEP, env=env)
    with containers.launcher().start(launch) as endpoint:
        wait_for(lambda: not is_free(launch.port))
        seen, inside = endpoint.environment(), endpoint._environment_inside()
        assert seen == inside
        assert seen is not None
        assert seen["NCCL_PROTO"] == "LL128"
        assert "FROM_IMAGE" not in seen
        assert "IMAGE_API_KEY" in seen
    launch = containers.launch(LISTEN + SLEEP)
    with containers.launcher().start(launch) as endpoint:
        wait_for(lambda: not is_free(launch.port))
        assert (endpoint.environment() or {})["FROM_IMAGE"] == "set-by-the-image"


def test_kill_for_lack_of_memory_is_told(containers: Containers) -> None:
    endpoint = ended(containers, "x = bytearray(500 << 20); print(len(x))", memory="100m")
    assert endpoint.exit_code() == -signal.SIGKILL
    assert "limit is 100m" in str(endpoint.killed_for_memory())


@pytest.mark.parametrize("then", ["time.sleep(600)", "raise SystemExit(1)"])
def test_kill_of_a_child_for_lack_of_memory_is_told(containers: Containers, then: str) -> None:
    code = (
        "import os, time\npid = os.fork()\nif not pid: bytearray(500 << 20)\nprint(os.waitpid(pid, 0)[1])\n"
        "print('survived', flush=True)\n" + then
    )
    launch = containers.launch(code)
    with containers.launcher(memory="100m").start(launch) as endpoint:
        wait_for(lambda: "survived" in launch.log_path.read_text())
        wait_for(lambda: endpoint.killed_for_memory() is not None)
        assert "limit is 100m" in str(endpoint.killed_for_memory())


def test_a_paused_container_is_ended_too(containers: Containers) -> None:
    launch = containers.launch(LISTEN + SLEEP)
    with containers.launcher().start(launch) as endpoint:
        wait_for(lambda: not is_free(launch.port))
        containers.left()[0].pause()
        assert endpoint.exit_code() is None
    assert is_free(launch.port)


def test_a_container_that_somebody_removed(containers: Containers) -> None:
    launch = containers.launch(LISTEN + SLEEP)
    with containers.launcher().start(launch) as endpoint:
        containers.left()[0].remove(force=True)
        wait_for(lambda: endpoint.exit_code() is not None)
        assert endpoint.exit_code() == -signal.SIGKILL
        assert endpoint.pids() == ()
        assert not endpoint.owns_port()
        assert endpoint.environment() is None


def test_missing_image_and_refused_options_are_one_sentence(containers: Containers) -> None:
    options = ContainerOptions("tuner-no-such-image:1", ulimits={})
    place = Image(containers.client, options.image, options.image, options)
    launcher = DockerLauncher(containers.folder, containers.client, options, lambda image: place)
    with pytest.raises(UsageError, match="docker pull tuner-no-such-image:1"):
        launcher.start(containers.launch(SLEEP)).__enter__()
    with pytest.raises(UsageError, match="NVIDIA Container Toolkit"):
        containers.launcher(gpus="all").start(containers.launch(SLEEP)).__enter__()
    with pytest.raises(UsageError, match="docker refuses"):
        containers.launcher(options={"runtime": "no-such"}).start(containers.launch(SLEEP)).__enter__()
    with pytest.raises(UsageError, match=r"docker refuses.*no-such-net"):
        containers.launcher(network="no-such-net").start(containers.launch(SLEEP)).__enter__()


def test_the_command_line_makes_the_same_container(containers: Containers, tmp_path: Path) -> None:
    """What an operator pastes, through Docker's own command line, against what the SDK was given."""
    options = containers.options(
        network="bridge",
        volumes=(f"{tmp_path}:/data:rw", "tuner-test-volume:/named"),
        user="1000:1000",
        memory="1.5g",
        cpus=0.5,
        cpuset="0",
        shm_size="128m",
        ulimits={"nofile": "512:1024"},
        options={"cap_add": ["CAP_SYS_NICE"], "tmpfs": {"/scratch": ""}, "pids_limit": 99, "hostname": "h"},
    )
    launch = containers.launch(SLEEP, env={"A": "1 2", "FROM_IMAGE": None})
    words = docker_run_words(options, launch, set_by_image={"FROM_IMAGE"})
    pasted = shlex.join(["docker", "create", *words[3:]])
    made_id = subprocess.run(pasted, shell=True, check=True, capture_output=True, text=True).stdout.strip()
    arguments = create_arguments(options, launch, {}, set_by_image={"FROM_IMAGE"})
    ours = containers.client.containers.create(**arguments)
    theirs = containers.client.containers.get(made_id)
    try:
        pairs = {key: (_made(ours).get(key), _made(theirs).get(key)) for key in _made(ours) | _made(theirs)}
        assert {key: pair for key, pair in pairs.items() if pair[0] != pair[1]} == {}
    finally:
        ours.remove(v=True)
        theirs.remove(v=True)
        containers.client.volumes.get("tuner-test-volume").remove()


def _made(container: Any) -> dict[str, Any]:
    """All that decides how it runs; the SDK also lists the targets of mounts as Volumes."""
    container.reload()
    host, config = dict(container.attrs["HostConfig"]), dict(container.attrs["Config"])
    host["Binds"] = sorted(host["Binds"])
    for name in ("ConsoleSize", "RestartPolicy"):  # none of them means none
        host.pop(name, None)
    for name in ("AttachStdout", "AttachStderr", "Volumes"):
        config.pop(name, None)
    return {k: v for k, v in {**host, **config}.items() if v}


# The image as a Place


def test_a_program_of_the_image_runs_to_its_end(containers: Containers) -> None:
    place = containers.place(containers.options())
    code = "import os, sys; print(os.environ['A'], os.environ.get('FROM_IMAGE')); sys.exit('told')"
    done = place.run(["python3", "-c", code], {"A": "1", "FROM_IMAGE": None}, timeout_s=60)
    assert (done.exit_code, done.output, done.errors) == (1, "1 None\n", "told\n")
    late = place.run(["python3", "-c", "import time; print(1, flush=True); time.sleep(60)"], {}, timeout_s=2)
    assert (late.exit_code, late.output) == (None, "1\n")
    assert place.identity.startswith("sha256:")


def test_programs_are_looked_up_inside(containers: Containers) -> None:
    place = containers.place(containers.options())
    assert place.program("python3") == "python3"
    for name in ("no-such-program", "/no/such/python"):
        with pytest.raises(
            UsageError, match=f"{name}: there is no such program in the image {containers.image}"
        ):
            place.program(name)


def test_a_conversation_answers_line_by_line(containers: Containers) -> None:
    place = containers.place(containers.options())
    code = (
        "import sys\nprint('ready', file=sys.stderr, flush=True)\n"
        "for line in sys.stdin:\n"
        "  print('x' * 70000 + line.strip(), flush=True)\n"
        "  if line == 'end\\n': sys.exit('why')"
    )
    talk = place.converse(["python3", "-c", code], {})
    assert talk.ask("one", 60) == "x" * 70000 + "one\n"
    assert talk.ask("end", 60) == "x" * 70000 + "end\n"
    assert talk.ask("more", 60) == ""
    assert talk.errors().splitlines() == ["ready", "why"]
    talk.end()
    slow = place.converse(["python3", "-c", "import time; time.sleep(600)"], {})
    assert slow.ask("hello", 1) == ""
    assert slow.errors() == "no answer (exit code 137)"
    slow.end()
    assert not containers.client.containers.list(all=True, filters={"label": "tuner.run=asking"})


def test_a_missing_image_is_pulled_with_progress_and_known_by_its_digest(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchers.containers.image.PROGRESS_PERIOD_S", 0.05)
    told: list[str] = []
    with registry() as address:
        name = f"{address}/some/engine:v1"
        digest = ensure_image(client, name, told.append)
        assert ensure_image(client, name, told.append) == digest
        options = ContainerOptions(name, ulimits={})
        assert Image(client, name, digest, options).shown == digest
        client.images.remove(name)
    assert digest.startswith(f"{address}/some/engine@sha256:")
    assert told[0] == f"pulling {name}"
    assert any("of 0.00 GB" in line for line in told[1:-1])
    assert told[-1].endswith("1 layers done")
    with pytest.raises(UsageError, match=r"is not on this machine and cannot be pulled: .*refused"):
        ensure_image(client, name)
