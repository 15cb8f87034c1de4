"""Recorded command lines, read back and addressed anew; each engine's server for whoever deploys it."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.containers.command import docker_run_words
from launchers.containers.options import ContainerOptions
from launchers.containers.recorded import read_words
from launchers.engines import deployment_of
from launchers.engines.deploy import with_flag
from launchers.launcher import Launch

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
options = st.builds(
    ContainerOptions,
    st.just("a:1"),
    gpus=st.sampled_from(["all", 2, ("1", "3"), None]),
    ipc=st.sampled_from(["private", "host"]),
    network=st.sampled_from(["host", "bridge", "mine"]),
    volumes=st.sampled_from([(), ("/data:/data:rw", "name:/x")]),
    memory=st.sampled_from([None, "4g"]),
    user=st.sampled_from([None, "1:2"]),
    options=st.sampled_from([{}, {"cap_add": ["SYS_NICE"], "init": False}]),
)
launches = st.builds(
    Launch,
    st.tuples(st.just("server"), texts, st.just("--port"), st.just("4000")),
    st.just(4000),
    st.just(Path()),
    st.dictionaries(st.sampled_from(["A", "B", "C"]), texts | st.none()),
    st.sampled_from([(), (Path("/models/a b"),)]),
    st.just("a@sha256:1"),
)


@given(options, launches, st.sampled_from(["docker", "podman"]))
def test_a_recorded_container_is_read_back_whole(
    options: ContainerOptions, launch: Launch, tool: str
) -> None:
    words = docker_run_words(options, launch, tool)
    assert read_words(words, options, launch.port).words() == words


def test_a_secret_stays_a_name() -> None:
    launch = Launch(
        ("server", "--port", "4000"), 4000, Path(), {"HF_TOKEN": "planted", "A": "1"}, image="a:1"
    )
    words = docker_run_words(ContainerOptions("a:1"), launch)
    found = read_words(words, ContainerOptions("a:1"), 4000)
    assert found.options.pass_env == ("HF_TOKEN",)
    assert found.launch.env == {"A": "1"}


def test_another_port_is_published() -> None:
    launch = Launch(("server", "--port", "4000"), 4000, Path(), image="a:1")
    options = ContainerOptions("a:1", network="bridge")
    found = read_words(docker_run_words(options, launch), options, 4000)
    moved = replace(found, launch=replace(found.launch, port=8000))
    assert "0.0.0.0:8000:8000" in moved.words("0.0.0.0")
    assert "127.0.0.1:8000:8000" in moved.words()


def test_a_flag_in_its_place_or_at_the_end() -> None:
    assert with_flag(("s", "--port", "1", "--x"), "--port", "2") == ("s", "--port", "2", "--x")
    assert with_flag(("s",), "--port", "2") == ("s", "--port", "2")


@pytest.mark.parametrize(
    ("engine", "argv", "models"),
    [
        ("llamacpp", ("s", "--model", "/m", "--model-draft", "/d"), ["/m", "/d"]),
        ("sglang", ("s", "--model-path", "/m", "--speculative-draft-model-path", "/d"), ["/m", "/d"]),
        (
            "vllm",
            ("python", "-m", "vllm", "serve", "/m", "--speculative-config", '{"model": "/d"}'),
            ["/m", "/d"],
        ),
        ("vllm", ("python", "-m", "x.api_server", "--model", "/m", "--served-model-name", "serve"), ["/m"]),
    ],
)
def test_models_of_a_command_line(engine: str, argv: tuple[str, ...], models: list[str]) -> None:
    assert deployment_of(engine).models(argv) == models


def test_the_program_in_an_image() -> None:
    llamacpp = deployment_of("llamacpp")
    assert llamacpp.in_image(("/opt/llama-server", "--x"))[0] == "/app/llama-server"
    assert llamacpp.in_image(("/venv/bin/python", "-P", "-m", "launchers.embedded"))[0] == "python3"
    assert deployment_of("vllm").in_image(("/venv/bin/python", "-m", "vllm"))[0] == "python3"


@pytest.mark.parametrize("engine", ["llamacpp", "sglang", "vllm", "fake"])
def test_every_engine_has_a_port_and_a_check(engine: str) -> None:
    found = deployment_of(engine)
    assert 1024 < found.port < 65536
    assert "http://127.0.0.1:1/health" in " ".join(found.ask(f"http://127.0.0.1:1{found.health}"))
