"""What a container is given, said twice: for the docker SDK and as a command line. No daemon is needed."""

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers.containers import daemon, options
from launchers.containers.command import (
    PODMAN,
    create_arguments,
    docker_run_command,
    mounted,
    settings,
    without_secrets,
)
from launchers.containers.daemon import is_local
from launchers.containers.image import Layers
from launchers.containers.images import Images
from launchers.containers.leftovers import reap_containers
from launchers.containers.memory import oom_kills
from launchers.containers.options import ContainerOptions, bytes_of, option_words, parse_volume, shm_bytes
from launchers.engines import files_read
from launchers.engines.engine import Served
from launchers.launcher import Launch
from results.errors import LaunchFailed, UsageError

EVERYTHING: dict[str, Any] = {
    "gpus": ("0", "GPU-1"),
    "shm_size": "32g",
    "ulimits": {"memlock": -1, "nofile": "1024:2048"},
    "network": "bridge",
    "volumes": ("/data:/data", "cache:/root/.cache:rw"),
    "user": "1000:1000",
    "memory": "64g",
    "cpus": 7.5,
    "cpuset": "0-7",
    "privileged": True,
    "pass_env": ("HF_TOKEN",),
    "options": {"cap_add": ["SYS_NICE"], "sysctls": {"net.core.somaxconn": 1024}, "pids_limit": 100},
}


def launch(*argv: str, **env: str | None) -> Launch:
    return Launch(argv or ("python3", "-m", "server"), 8000, Path("logs/server.log"), env)


def run(given: ContainerOptions, what: Launch, **more: Any) -> list[str]:
    return shlex.split(docker_run_command(given, what, **more))


# One description, two forms


def test_the_usual_container_is_this_command() -> None:
    given = ContainerOptions("some/image:v1", gpus="all", pass_env=("HF_TOKEN",))
    assert docker_run_command(given, launch(NCCL_PROTO="LL128", API_KEY="do-not-show")) == (
        "docker run --rm --init --gpus all --ipc private --shm-size 17179869184"
        " --ulimit memlock=-1:-1 --ulimit stack=67108864:67108864 --network host"
        " -e NCCL_PROTO=LL128 -e API_KEY -e HF_TOKEN --log-driver json-file"
        " --entrypoint python3 some/image:v1 -m server"
    )


def test_every_keyword_for_the_sdk_has_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "x")
    given = ContainerOptions("image", **EVERYTHING)
    what = Launch(("server", "--model", str(tmp_path)), 8000, tmp_path / "log", {"A": "1"}, (tmp_path,))
    arguments = create_arguments(given, what, {"label": "1"})
    made = [*settings(given, what)]
    assert {s.keyword for s in made} | {"image", "entrypoint", "command", "labels"} == set(arguments)
    assert all(setting.words for setting in made)
    words = run(given, what)
    for setting in made:
        assert " ".join(setting.words) in " ".join(words)
    assert arguments["ports"] == {"8000/tcp": ("127.0.0.1", 8000)}
    assert "127.0.0.1:8000:8000" in words
    assert arguments["volumes"] == ["/data:/data:ro", "cache:/root/.cache:rw", f"{tmp_path}:{tmp_path}:ro"]
    assert arguments["mem_limit"] == arguments["memswap_limit"] == 64 << 30


def test_the_sdk_takes_every_keyword(monkeypatch: pytest.MonkeyPatch) -> None:
    from docker.models.containers import RUN_CREATE_KWARGS, RUN_HOST_CONFIG_KWARGS, _create_container_args

    monkeypatch.setenv("HF_TOKEN", "x")
    arguments = create_arguments(ContainerOptions("image", **EVERYTHING), launch(A="1"), {})
    made = _create_container_args({**arguments, "version": "1.41"})
    assert made["host_config"]["Ulimits"][0] == {"Name": "memlock", "Soft": -1, "Hard": -1}
    assert made["host_config"]["DeviceRequests"][0]["DeviceIDs"] == ["0", "GPU-1"]
    accepted = {*RUN_CREATE_KWARGS, *RUN_HOST_CONFIG_KWARGS, "ports", "volumes", "network"}
    named = {*options.FURTHER, *options._OWN_KEYS, *options._BY_THE_TOOL}
    of_windows_or_old = {"cpu_count", "cpu_percent", "isolation", "lxc_conf", "links", "kernel_memory"}
    of_the_sdk = {"version", "use_config_proxy"}
    rare = {
        "blkio_weight_device",
        "init_path",
        *(f"device_{a}_{b}" for a in ("read", "write") for b in ("bps", "iops")),
    }
    assert named <= accepted
    assert accepted - named == of_windows_or_old | of_the_sdk | rare


@pytest.mark.parametrize(
    ("gpus", "request_", "words"),
    [
        ("all", {"Count": -1, "Capabilities": [["gpu"]]}, ["--gpus", "all"]),
        (2, {"Count": 2, "Capabilities": [["gpu"]]}, ["--gpus", "2"]),
        (("0", "1"), {"DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]]}, ["--gpus", '"device=0,1"']),
    ],
)
def test_gpus(gpus: Any, request_: dict[str, object], words: list[str]) -> None:
    (setting,) = (s for s in settings(ContainerOptions("i", gpus=gpus), launch()) if s.words[0] == "--gpus")
    assert setting.value == [request_]
    assert list(setting.words) == words


def test_podman_knows_gpus_by_their_cdi_names() -> None:
    words = run(ContainerOptions("i", gpus=2), launch(), tool=PODMAN)
    assert words[:2] == ["podman", "run"]
    assert words.count("--device") == 2
    assert "nvidia.com/gpu=1" in words
    arguments = create_arguments(ContainerOptions("i", gpus="all"), launch(), {}, PODMAN)
    assert arguments["device_requests"] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]


def test_variables_of_the_image_are_taken_away_by_env() -> None:
    what = launch("server", "--port", "1", NCCL_ALGO=None, NCCL_PROTO=None, A="1")
    known = create_arguments(ContainerOptions("i"), what, {}, set_by_image={"NCCL_PROTO", "PATH"})
    assert known["entrypoint"] == ["env"]
    assert known["command"] == ["-u", "NCCL_PROTO", "server", "--port", "1"]
    assert known["environment"] == {"A": "1"}
    not_set = create_arguments(ContainerOptions("i"), what, {}, set_by_image=())
    assert not_set["entrypoint"] == ["server"]
    unknown = run(ContainerOptions("i"), what)
    assert unknown[-7:] == ["-u", "NCCL_ALGO", "-u", "NCCL_PROTO", "server", "--port", "1"]


def test_a_point_may_name_another_image() -> None:
    what = Launch(("server",), 1, Path("log"), image="other:2")
    assert create_arguments(ContainerOptions("i"), what, {})["image"] == "other:2"
    assert run(ContainerOptions("i"), what)[-1] == "other:2"


# Secrets


def test_secrets_are_in_no_word_and_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted-token-1")
    given = ContainerOptions("i", pass_env=("HF_TOKEN",))
    token = "hf_" + "a" * 30
    what = launch("server", "--api-key", "planted-flag-2", DB_PASSWORD="planted-env-3", PLAIN=token)
    assert create_arguments(given, what, {})["environment"] == {
        "DB_PASSWORD": "planted-env-3",
        "PLAIN": token,
        "HF_TOKEN": "planted-token-1",
    }
    shown = docker_run_command(given, what)
    assert "planted" not in shown
    assert token not in shown
    told = f"invalid request: HF_TOKEN=planted-token-1, DB_PASSWORD=planted-env-3 {token} 'x'"
    assert without_secrets(told, given, what) == (
        "invalid request: HF_TOKEN=<secret>, DB_PASSWORD=<secret> <secret> 'x'"
    )


def test_a_variable_to_pass_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    given = ContainerOptions("i", pass_env=("HF_TOKEN",))
    with pytest.raises(UsageError, match="pass_env: HF_TOKEN is not set where tuner runs"):
        create_arguments(given, launch(), {})
    assert "HF_TOKEN" in docker_run_command(given, launch())  # a plan needs no value


# What is mounted


def test_model_files_are_mounted_where_they_are(tmp_path: Path) -> None:
    model, inside = tmp_path / "model", tmp_path / "model" / "template.jinja"
    model.mkdir()
    inside.touch()
    assert mounted([model, inside]) == [model]
    covered = ContainerOptions("i", volumes=(f"{tmp_path}:{tmp_path}:rw",))
    what = Launch(("server",), 1, Path("log"), {}, (model,))
    assert create_arguments(covered, what, {})["volumes"] == [f"{tmp_path}:{tmp_path}:rw"]


def test_a_snapshot_of_the_hub_comes_with_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "1").touch()
    (snapshot / "config.json").symlink_to("../../blobs/1")
    assert mounted([snapshot]) == [repository]


def test_links_take_along_what_they_name(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "weights.safetensors").touch()
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights.safetensors").symlink_to(tmp_path / "store" / "weights.safetensors")
    (model / "gone").symlink_to(tmp_path / "nowhere")
    (model / "loop").symlink_to("loop")
    assert mounted([model]) == [model, tmp_path / "store"]


def test_a_folder_to_write_into_is_mounted_for_writing(tmp_path: Path) -> None:
    """At the same path, also inside of what a volume covers."""
    covering = ContainerOptions("i", volumes=(f"{tmp_path}:{tmp_path}",))
    words = run(covering, replace(launch(), writes=(tmp_path / "traces",)))
    mounts = [words[i + 1] for i, word in enumerate(words) if word == "-v"]
    assert mounts == [f"{tmp_path}:{tmp_path}:ro", f"{tmp_path}/traces:{tmp_path}/traces:rw"]


def test_a_path_with_a_colon_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    with pytest.raises(UsageError, match="rename it"):
        mounted([tmp_path / "a:b"])


def test_a_server_reads_its_models_and_what_its_flags_name(tmp_path: Path) -> None:
    template, model = tmp_path / "chat.jinja", tmp_path / "model"
    template.touch()
    argv = ("/usr/bin/python3", "-m", "x", f"--template={template}", "--log", "/dev/null", "--x", "y" * 5000)
    assert files_read((*argv, "--cache", "/no/such"), Served(model, None, {}, {})) == (model, template)


# The keys


@pytest.mark.parametrize(
    ("text", "expected"),
    [("16g", 16 << 30), ("64m", 64 << 20), ("1.5GiB", 3 << 29), ("512k", 512 << 10), ("7", 7)],
)
def test_sizes(text: str, expected: int) -> None:
    assert bytes_of("key", text) == expected


def test_shared_memory_is_the_containers_or_the_hosts() -> None:
    assert shm_bytes(ContainerOptions("i", shm_size="64m")) == 67108864
    hosts = os.statvfs("/dev/shm")
    assert shm_bytes(ContainerOptions("i", ipc="host")) == hosts.f_blocks * hosts.f_frsize
    assert "shm_size" not in {s.keyword for s in settings(ContainerOptions("i", ipc="host"), launch())}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gpus": "some"}, "neither all, nor a count"),
        ({"gpus": 0}, "neither all, nor a count"),
        ({"gpus": True}, "neither all, nor a count"),
        ({"ipc": "shareable"}, "neither private nor host"),
        ({"shm_size": "big"}, r"container\.shm_size: 'big' is no size: write it like 16g"),
        ({"memory": "-1g"}, r"container\.memory"),
        ({"network": "none"}, "cannot be reached"),
        ({"network": "container:x"}, "cannot be reached"),
        ({"ulimits": {"nofile": "many"}}, r"container\.ulimits\.nofile"),
        ({"volumes": ("/data",)}, "not source:target"),
        ({"volumes": ("/data:relative",)}, "absolute target"),
        ({"volumes": ("/data:/data:wr",)}, "source:target:rw"),
        ({"options": {"cap-ad": ["X"]}}, r"container\.options\.cap-ad: .* did you mean cap_add\?"),
        ({"options": {"mem_limit": "1g"}}, r"write container\.memory"),
        ({"options": {"name": "x"}}, "set by the tool: the tool names every container"),
        ({"options": {"restart_policy": {}}}, "a server that comes back by itself cannot be measured"),
        ({"options": {"cap_add": "X"}}, "expected a list"),
        ({"options": {"init": "no"}}, "expected true or false"),
        ({"options": {"hostname": True}}, "expected one value"),
        ({"options": {"sysctls": ["a"]}}, "expected names with values"),
    ],
)
def test_what_no_container_can_have_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ContainerOptions("i", **given)


def test_further_options_as_words() -> None:
    assert option_words("cap_add", ["A", "B"]) == ("--cap-add", "A", "--cap-add", "B")
    assert option_words("extra_hosts", {"db": "10.0.0.1"}) == ("--add-host", "db:10.0.0.1")
    assert option_words("tmpfs", {"/scratch": ""}) == ("--tmpfs", "/scratch")
    assert option_words("sysctls", {"a": 1}) == ("--sysctl", "a=1")
    assert option_words("read_only", False) == ()
    assert "--init" not in run(ContainerOptions("i", options={"init": False}), launch())


def test_volumes_are_read_only_unless_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_volume("/a:/b/").text == "/a:/b:ro"
    assert parse_volume("/a:/b:rw,z").text == "/a:/b:rw,z"
    assert parse_volume("/a:/b:z").text == "/a:/b:ro,z"
    assert parse_volume("~/a:/b").text == f"{tmp_path}/a:/b:ro"
    assert parse_volume("models:/b").text == "models:/b:ro"
    given = ContainerOptions("i", volumes=("named:/x", "/no/such/folder:/y", f"{tmp_path}:/z"))
    assert options.missing_sources(given) == ["/no/such/folder"]


# The daemon


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("unix:///var/run/docker.sock", True),
        ("tcp://127.0.0.1:2375", True),
        ("tcp://localhost", True),
        ("tcp://10.0.0.1:2375", False),
        ("tcp://127.0.0.1.example.org:2375", False),
        ("ssh://root@gpu-box", False),
    ],
)
def test_only_a_daemon_of_this_machine(address: str, local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_local(address) is local
    monkeypatch.setenv("DOCKER_HOST", address)
    if not local:
        with pytest.raises(UsageError, match="on another machine"):
            daemon.connect()


def test_no_daemon_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(UsageError, match=r"no container daemon answers at unix://.*: start it"):
        daemon.connect()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "NVIDIA Container Toolkit"),
        ("No such image: x:1", "docker pull x:1"),
        ("write /var/lib/docker/tmp/1: no space left on device", "no space left where docker keeps"),
        ("Bind for 127.0.0.1:8000 failed: port is already allocated", "taken by another program"),
        (
            'Conflict. The container name "/x" is already in use by container "ab"',
            "has a container of this name",
        ),
        ("error setting rlimit type 8: operation not permitted", r"container\.ulimits"),
        ('exec: "docker-init": executable file not found in $PATH', r"container\.options\.init"),
        ("invalid reference format", "docker refuses: invalid reference format"),
        (
            "('Connection aborted.', PermissionError(13, 'Permission denied'))",
            "no permission to talk to docker",
        ),
        ("('Connection aborted.', ConnectionRefusedError(111, 'x'))", "no container daemon answers"),
    ],
)
def test_errors_of_the_daemon_are_one_sentence(message: str, told: str) -> None:
    from docker.errors import APIError

    with pytest.raises(UsageError, match=told), daemon.explained(image="x:1"):
        raise APIError("500 Server Error", explanation=message)


def test_a_program_that_is_not_in_the_image_is_a_failed_launch() -> None:
    from docker.errors import APIError

    message = 'OCI runtime create failed: exec: "/no/server": stat /no/server: no such file or directory'
    with (
        pytest.raises(LaunchFailed, match="cannot run /no/server in x:1"),
        daemon.explained(image="x:1", program="/no/server"),
    ):
        raise APIError("400", explanation=message)


# A plan without the image


def test_nothing_is_reaped_without_a_docker_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a broken one is installed: a sweep without containers needs none."""
    (tmp_path / "docker.py").write_text("raise ImportError('no module named requests')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "docker"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert reap_containers(tmp_path, end=False) == []


def test_a_plan_goes_on_without_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    images = Images(ContainerOptions("some/image:v1", network="bridge"), planning=True)
    place = images(None)
    assert place.absent.startswith("the image some/image:v1 was not asked: no container daemon")
    assert place.program("/opt/python") == "/opt/python"
    assert place.host == "0.0.0.0"
    assert place.converse(["x"], {}).errors() == place.absent
    assert images.run_words(launch("server"))[-1] == "some/image:v1"
    with pytest.raises(UsageError, match="no container daemon"):
        Images(ContainerOptions("some/image:v1"))(None)


# Progress and memory


def test_progress_of_a_pull_is_bytes_over_layers() -> None:
    layers = Layers()
    for event in (
        {"id": "a", "status": "Pulling fs layer", "progressDetail": {}},
        {"id": "a", "status": "Downloading", "progressDetail": {"current": 10**9, "total": 4 * 10**9}},
        {"id": "b", "status": "Already exists", "progressDetail": {}},
        {"id": "c", "status": "Downloading", "progressDetail": {"current": 1, "total": 10**9}},
        {"id": "c", "status": "Pull complete", "progressDetail": {}},
        {"status": "Digest: sha256:1"},
    ):
        layers.note(event)
    assert str(layers) == "2.00 of 5.00 GB, 2 layers done"


@pytest.mark.parametrize(
    ("line", "file", "text"),
    [
        (
            "0::/system.slice/docker-ab.scope",
            "system.slice/docker-ab.scope/memory.events",
            "oom 3\noom_kill 2\n",
        ),
        ("4:memory:/docker/ab", "memory/docker/ab/memory.oom_control", "under_oom 0\noom_kill 2\n"),
        ("0::/größe.slice/ab", "größe.slice/ab/memory.events", "oom_kill 2\n"),
    ],
)
def test_kills_are_counted_in_both_versions_of_control_groups(
    tmp_path: Path, line: str, file: str, text: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"5:cpu:/docker/ab\n{line}\n", "utf-8")
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert oom_kills(7, tmp_path, tmp_path) == 2
    assert oom_kills(8, tmp_path, tmp_path) == 0
