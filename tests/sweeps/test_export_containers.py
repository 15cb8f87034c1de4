"""Exports for containers, as Docker Compose and the schemas of Kubernetes read them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launchers.containers.command import docker_run_words
from launchers.launcher import Launch
from results.errors import UsageError
from results.records import GpuTelemetry, Point
from results.store import RunFolder
from sweeps.export.compose import project_name
from sweeps.export.export import export
from sweeps.export.kubernetes import object_name
from sweeps.sweep import Sweep
from tests.exported import CELL, arm_with, program, ran, run_folder
from tests.records import arm
from tests.sweeps.test_export import names, slow, texts

CHAIN = Point("EAGLE3", {"num_steps": 3, "topk": 1})
SERVER = (
    *("python3", "-m", "sglang.launch_server", "--model-path", "/models/llama", "--port", "41234"),
    *("--host", "127.0.0.1", "--speculative-draft-model-path", "/models/head"),
)
DIGEST = "lmsysorg/sglang@sha256:" + "ab" * 32
BOXED: Mapping[str, Any] = {
    "image": "lmsysorg/sglang:latest",
    "gpus": ["2", "3"],
    "shm_size": "32g",
    "ulimits": {"memlock": -1},
    "network": "bridge",
    "volumes": ["/data/cache:/cache:rw", "store:/store"],
    "user": "1000:1001",
    "memory": "64g",
    "cpus": 12,
    "cpuset": "0-11",
    "pass_env": ["HF_TOKEN"],
    "options": {"cap_add": ["SYS_NICE"], "tmpfs": {"/scratch": "size=1g"}, "cpuset_mems": "0"},
}


def process(path: Path, argv: Sequence[str] = SERVER, gpus: int = 0, **sweep: Any) -> RunFolder:
    """A run whose winner was a process of the machine."""

    def arm_of(point: Point, speeds: Any) -> Any:
        found = replace(arm(point, speeds), argv=tuple(argv))
        shown = tuple(GpuTelemetry(f"GPU-{i}", "H200") for i in range(gpus))
        windows = [replace(m, telemetry=replace(m.telemetry, gpus=shown)) for m in found.measurements]
        return replace(found, measurements=tuple(windows))

    measured = [(CHAIN, {CELL: 130.0})]
    return run_folder(
        path / "run", {"name": "first", "engine": "sglang", **sweep}, measured, arm_of, measured
    )


def boxed(
    path: Path,
    container: Mapping[str, Any] = BOXED,
    env: Mapping[str, str | None] | None = None,
    argv: Sequence[str] = SERVER,
    name: str = "first",
) -> RunFolder:
    """A run whose winner was a container."""
    sweep = {"name": name, "engine": "sglang", "launcher": "docker", "container": container}
    asked = Sweep.model_validate(sweep).container
    assert asked is not None
    options = asked.to_options()
    launch = Launch(tuple(argv), 41234, Path(), env or {}, (Path("/models"),), DIGEST)
    measured = [(CHAIN, {CELL: 130.0})]
    return run_folder(
        path / "run",
        sweep,
        measured,
        arm_with(docker_run_words(options, launch, set_by_image=None)),
        measured,
    )


def service(text: str, tmp_path: Path, **env: str) -> dict[str, Any]:
    """The one service of the file, as Docker Compose reads it."""
    file = tmp_path / "compose.yaml"
    file.write_text(text, encoding="utf-8")
    told = json.loads(ran(program("docker-compose"), "-f", file, "config", "--format", "json", env=env))
    (found,) = told["services"].values()
    plain: dict[str, Any] = json.loads(json.dumps(found).replace("$$", "$"))
    return plain


def objects(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Deployment and Service, checked against the schemas of Kubernetes."""
    validate = pytest.importorskip("kubernetes_validate")
    found = list(yaml.safe_load_all(text))
    for document in found:
        validate.validate(document, "1.33", strict=True)
    deployment, of_service = found
    assert (
        of_service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    )
    return deployment, of_service


def expanded(text: str) -> str:
    """As Kubernetes expands $(NAME) in arguments: third_party/forked/golang/expansion, without variables."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda found: "$" if found[0] == "$$" else f"<{found[1]}>", text)


class TestCompose:
    def test_a_process_needs_an_image(self, tmp_path: Path) -> None:
        found = export(process(tmp_path, gpus=2, env={"FOO": "a $b"}), "compose", port=30001)
        read = service(found.text, tmp_path, IMAGE="mine@sha256:1")
        assert read["image"] == "mine@sha256:1"
        assert [*read["entrypoint"], *read["command"]] == [
            *SERVER[:5],
            "--port",
            "30001",
            "--host",
            "0.0.0.0",
            *SERVER[9:],
        ]
        assert read["environment"] == {"FOO": "a $b"}
        (port,) = read["ports"]
        assert (port["host_ip"], port["published"], port["target"]) == ("127.0.0.1", "30001", 30001)
        assert {(v["source"], v["target"], v["read_only"]) for v in read["volumes"]} == {
            (path, path, True) for path in ("/models/llama", "/models/head")
        }
        (device,) = read["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 2, ["gpu"])
        assert "30001/health" in " ".join(read["healthcheck"]["test"])
        assert "To set: IMAGE, an image with SGLang 0.5.23 (best by digest)." in found.notes

    def test_without_its_image_compose_says_what_to_set(self, tmp_path: Path) -> None:
        text = export(process(tmp_path), "compose").text
        with pytest.raises(AssertionError, match=r"set IMAGE to an image with SGLang 0\.5\.23"):
            service(text, tmp_path)

    def test_no_gpu_where_none_was_used(self, tmp_path: Path) -> None:
        assert "deploy" not in yaml.safe_load(export(process(tmp_path), "compose").text)["services"]["first"]

    def test_a_container_is_what_it_was(self, tmp_path: Path) -> None:
        folder = boxed(tmp_path, env={"NCCL_PROTO": "LL", "NCCL_ALGO": None, "HF_TOKEN": "hf_" + "x" * 30})
        found = export(folder, "compose")
        read = service(found.text, tmp_path, HF_TOKEN="given")
        assert read["image"] == DIGEST
        assert [*read["entrypoint"], *read["command"]] == [
            "env",
            "-u",
            "NCCL_ALGO",
            *SERVER[:5],
            "--port",
            "30000",
            "--host",
            "0.0.0.0",
            *SERVER[9:],
        ]
        assert read["environment"] == {"NCCL_PROTO": "LL", "HF_TOKEN": "given"}
        assert read["shm_size"] == str(32 << 30)
        assert (read["mem_limit"], read["memswap_limit"]) == (str(64 << 30), str(64 << 30))
        assert (read["cpus"], read["cpuset"], read["user"], read["ipc"]) == (
            12,
            "0-11",
            "1000:1001",
            "private",
        )
        assert read["ulimits"] == {"memlock": {"soft": -1, "hard": -1}}
        assert (read["cap_add"], read["tmpfs"], read["init"]) == (["SYS_NICE"], ["/scratch:size=1g"], True)
        (device,) = read["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == ["2", "3"]
        assert [(v["type"], v["target"], v.get("read_only", False)) for v in read["volumes"]] == [
            ("bind", "/cache", False),
            ("volume", "/store", True),
            ("bind", "/models", True),
        ]
        assert "Left out, since Compose has no such key: cpuset_mems=0." in found.notes

    def test_on_the_network_of_the_host(self, tmp_path: Path) -> None:
        folder = boxed(tmp_path, {"image": "a:1", "network": "host", "ipc": "host"})
        read = service(export(folder, "compose").text, tmp_path)
        assert read["network_mode"] == "host"
        assert "ports" not in read
        assert read["command"][-3] == "127.0.0.1"
        assert read["ipc"] == "host"

    def test_the_gpus_that_a_variable_chose_become_the_containers(self, tmp_path: Path) -> None:
        found = export(process(tmp_path, gpus=2, env={"CUDA_VISIBLE_DEVICES": "4,5"}), "compose")
        read = service(found.text, tmp_path, IMAGE="x")
        (device,) = read["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == ["4", "5"]
        assert "environment" not in read
        assert any("CUDA_VISIBLE_DEVICES=4,5 became" in note for note in found.notes)

    @slow
    @given(value=texts, word=texts, name=names)
    def test_any_text_arrives(
        self, tmp_path_factory: pytest.TempPathFactory, value: str, word: str, name: str
    ) -> None:
        tmp_path = tmp_path_factory.mktemp("any")
        text = export(process(tmp_path, (*SERVER, word), env={name: value}), "compose").text
        read = service(text, tmp_path, IMAGE="x")
        assert read["command"][-1] == word
        assert read["environment"][name] == value


class TestKubernetes:
    def test_a_process(self, tmp_path: Path) -> None:
        found = export(process(tmp_path, gpus=8, env={"FOO": "a $(B)", "HF_TOKEN": "planted"}), "kubernetes")
        deployment, of_service = objects(found.text)
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == "SET-THE-IMAGE"
        assert "SET-THE-IMAGE  # TO SET: an image with SGLang 0.5.23" in found.text
        assert [*container["command"], *container["args"]] == [
            *SERVER[:5],
            "--port",
            "30000",
            "--host",
            "0.0.0.0",
            *SERVER[9:],
        ]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        variables = {v["name"]: v for v in container["env"]}
        assert expanded(variables["FOO"]["value"]) == "a $(B)"
        assert variables["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {
            "name": "first-secrets",
            "key": "HF_TOKEN",
        }
        assert "planted" not in found.text
        assert {v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v} == {
            "/models/llama",
            "/models/head",
        }
        assert all(m["readOnly"] for m in container["volumeMounts"] if m["name"] != "shm")
        assert of_service["spec"]["ports"][0]["port"] == 30000
        probe = container["startupProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] >= 600
        assert pod["enableServiceLinks"] is False

    def test_a_container(self, tmp_path: Path) -> None:
        found = export(boxed(tmp_path, env={"CUDA_VISIBLE_DEVICES": "2,3"}), "kubernetes")
        deployment, _ = objects(found.text)
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == DIGEST
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 2, "memory": str(64 << 30), "cpu": "12"}
        assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(32 << 30)}
        assert container["securityContext"] == {
            "runAsUser": 1000,
            "runAsGroup": 1001,
            "capabilities": {"add": ["SYS_NICE"]},
        }
        assert "env" in container
        assert [v["name"] for v in container["env"]] == ["HF_TOKEN"]
        assert any("ulimits" in note and "Left out" in note for note in found.notes)

    def test_a_cpu_server_asks_for_no_gpu(self, tmp_path: Path) -> None:
        deployment, _ = objects(export(process(tmp_path), "kubernetes").text)
        assert "resources" not in deployment["spec"]["template"]["spec"]["containers"][0]

    @slow
    @given(value=texts, word=texts, name=names)
    def test_any_text_arrives(
        self, tmp_path_factory: pytest.TempPathFactory, value: str, word: str, name: str
    ) -> None:
        tmp_path = tmp_path_factory.mktemp("any")
        deployment, _ = objects(
            export(process(tmp_path, (*SERVER, word), env={name: value}), "kubernetes").text
        )
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert expanded(container["args"][-1]) == word
        assert {v["name"]: expanded(v["value"]) for v in container["env"]}[name] == value

    @given(st.text(max_size=80))
    def test_any_name_of_a_run_gives_valid_ones(self, name: str) -> None:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", object_name(name))
        assert len(object_name(name)) <= 63 - len("-secrets")
        assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", project_name(name))

    @pytest.mark.parametrize(
        ("name", "valid"), [("Run_Name..", "run-name"), ("1st", "tuner-1st"), ("..", "tuner")]
    )
    def test_names(self, name: str, valid: str) -> None:
        assert object_name(name) == valid

    def test_a_run_of_any_name(self, tmp_path: Path) -> None:
        folder = boxed(tmp_path, name="1_Run.." + "x" * 90)
        objects(export(folder, "kubernetes").text)
        service(export(folder, "compose").text, tmp_path, HF_TOKEN="x")

    def test_a_path_that_nothing_mounts(self, tmp_path: Path) -> None:
        argv = (*SERVER[:4], "/models/a:b", *SERVER[5:])
        with pytest.raises(UsageError, match="a path with ':' cannot be mounted"):
            export(process(tmp_path, argv), "kubernetes")


class TestCommand:
    def test_docker_run_with_the_port_asked_for(self, tmp_path: Path) -> None:
        text = export(boxed(tmp_path), "command", port=8123, host="192.0.2.1").text
        assert "-p 192.0.2.1:8123:8123" in text
        assert "--port 8123" in text
        assert "41234" not in text
        assert ': "${HF_TOKEN:?set it' in text
        assert f" {DIGEST} -m sglang.launch_server" in text
        file = tmp_path / "serve.sh"
        file.write_text(text)
        ran(program("shellcheck"), file)

    def test_a_port_is_published_on_an_ip_address(self, tmp_path: Path) -> None:
        folder = boxed(tmp_path)
        assert "-p '[::1]:8123:8123'" in export(folder, "command", port=8123, host="::1").text
        ports = service(export(folder, "compose", host="::1").text, tmp_path, HF_TOKEN="x")["ports"]
        assert ports[0]["host_ip"] in ("::1", "[::1]")
        for form in ("command", "compose", "json"):
            with pytest.raises(UsageError, match="--host localhost: the port of a container is published on"):
                export(folder, form, host="localhost")

    def test_on_the_network_of_the_host_a_name_will_do(self, tmp_path: Path) -> None:
        folder = boxed(tmp_path, {**BOXED, "network": "host"})
        assert "--host localhost" in export(folder, "command", host="localhost").text
