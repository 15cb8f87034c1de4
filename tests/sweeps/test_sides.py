"""The two sides of a comparison: what is understood, and what is refused before anything is started."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.attach import AttachedEndpoint
from launchers.engines.engine import Served
from launchers.fake import FakeEngine, FakeLauncher
from launchers.launcher import Launch
from launchers.port import free_port
from results.errors import UsageError
from results.records import BASELINE, Point
from results.store import RunFolder
from sweeps.prepare import prepare
from sweeps.sides import comparison
from sweeps.sweep import parse_sweep
from tests.launchers.http_server import canned
from tests.launchers.test_attached import guarded

OFF = "engine: fake\nspace: {none: }\nworkload: {max_tokens: 60, prompts_per_class: 2}\n"
ON = OFF.replace("{none: }", "{fake-ngram: {n: 4, m: 8}}")


@pytest.fixture
def a(tmp_path: Path) -> str:
    return written(tmp_path / "plain.yaml", OFF)


@pytest.fixture
def b(tmp_path: Path) -> str:
    return written(tmp_path / "ngram.yaml", ON)


def written(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    engine, port = FakeEngine(), free_port()
    command = engine.command(BASELINE, Served("fake-model", None, {}, {}), port)
    with FakeLauncher(engine).start(Launch(command, port, tmp_path / "server.log")) as endpoint:
        yield endpoint.base_url


def test_the_images_of_both_sides_are_part_of_what_is_measured(
    a: str, b: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run would go on with another image under B's name."""
    compared = comparison([a, b])
    taken: list[str] = []

    def digests(places: object, images: object) -> dict[str, str]:
        taken.append(f"engine:{len(taken) + 1}")
        return {taken[-1]: "sha256:0"}

    monkeypatch.setattr("sweeps.prepare.image_digests", digests)
    assert compared.environment()["images"] == {"engine:1": "sha256:0", "engine:2": "sha256:0"}


def test_each_side_is_one_point_with_its_name(a: str, b: str) -> None:
    compared = comparison([a, b])
    assert compared.name == "compare-plain-ngram"
    assert [side.point for side in compared.sides] == [
        Point("none", name="A"),
        Point("fake-ngram", {"n": 4, "m": 8}, "B"),
    ]
    assert list(compared.differences()) == [
        ("method", "none", "fake-ngram"),
        ("n", "not set", "4"),
        ("m", "not set", "8"),
    ]
    assert compared.same_model
    assert not list(compared.notes())
    assert compared.sweep.confirm.finalists == 1  # alpha is not split over more


def test_equal_points_that_differ_elsewhere_are_two_sides(a: str, tmp_path: Path) -> None:
    other = written(tmp_path / "other.yaml", OFF + "env: {OMP_NUM_THREADS: '4', A_TOKEN: PLANTED}\n")
    compared = comparison([a, other])
    assert len({side.point.key for side in compared.sides}) == 2
    told = {name: (in_a, in_b) for name, in_a, in_b in compared.differences()}
    assert told["env.OMP_NUM_THREADS"] == ("not set", "4")
    assert "PLANTED" not in str(told) + str(compared.record())
    assert comparison([a, a]).b is not None  # the same twice: what the noise is


def test_one_side_alone_is_measured(a: str, url: str) -> None:
    for given in (a, url):
        compared = comparison([given])
        assert compared.b is None
        assert compared.sweep.pairing == "adjacent"  # there is nobody to take turns with


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ("seed: 2", "seed (1 and 2)"),
        ("objective: tpot_p50_s", "objective (tokens_per_s and tpot_p50_s)"),
        ("load: [{poisson: 2}]\nobjective: ttft_p50_s", "load"),
        ("limits: {ttft_p95_s: 0.5}", "limits.ttft_p95_s (not set and 0.5)"),
        ("patience: {reruns: 7}", "patience.reruns (2 and 7)"),
        ("confirm: {looks: [2]}", "confirm.looks"),
        ("pairing: together", "pairing (adjacent and together)"),
        ("budget: {hours: 1}", "budget.hours (not set and 1)"),
    ],
)
def test_sides_that_ask_for_different_measurements_are_refused(
    a: str, tmp_path: Path, more: str, keys: str
) -> None:
    other = written(tmp_path / "other.yaml", ON + more + "\n")
    with pytest.raises(UsageError, match="Only the servers may differ") as caught:
        comparison([a, other])
    assert keys in str(caught.value)


def test_overrides_apply_to_both_sides(a: str, b: str) -> None:
    compared = comparison([a, b], ["seed=9", "confirm.finalists=2", "budget.trials=1"])
    assert [side.plan.sweep.seed for side in compared.sides] == [9, 9]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("{fake-ngram: {n: [2, 4], m: 8}}", "space holds 2 configurations (fake-ngram m=8 n=2, fake-ngram"),
        ("{}", "space: {fake-ngram: {n: 1, m: 1}}"),
        ("{fake-ngram: }", "`space: {none: }` for the server without speculation"),
        ("{fake-ngram: {n: 4, m: 8}}\nshared: {batch: [8]}", "settings of `shared` go under `args`"),
        ("{none: }\nshared: {batch: [8]}", "put the setting under `args`"),
        ("{none: , fake-ngram: }", "'none' is the baseline"),
        ("{fake-ngrm: }", "did you mean 'fake-ngram'?"),
    ],
)
def test_a_side_is_exactly_one_configuration(a: str, tmp_path: Path, space: str, message: str) -> None:
    other = written(tmp_path / "other.yaml", OFF.replace("{none: }", space))
    with pytest.raises(UsageError) as caught:
        comparison([a, other])
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"B ({other}): ")


def test_a_url_takes_what_is_measured_from_the_other_side(a: str, url: str) -> None:
    compared = comparison([a, f"{url}/v1/"], ["seed=5"])
    attached = compared.sides[1]
    assert attached.is_attached
    assert attached.plan.sweep.url == url
    assert attached.plan.sweep.workload == compared.sweep.workload
    assert attached.plan.sweep.seed == 5
    assert attached.plan.sweep.model == "fake-model"  # as the server calls it
    assert attached.point == Point("unknown", name="B")
    told = {name: (in_a, in_b) for name, in_a, in_b in compared.differences()}
    assert told["url"] == ("not set", url)
    assert "model" not in told
    assert any("share their hardware" in note for note in compared.notes())


def test_two_urls_take_turns_on_the_workload_of_a_third_file(b: str, url: str) -> None:
    compared = comparison([url, url], [], Path(b))
    assert compared.sweep.workload.max_tokens == 60
    assert compared.sweep.pairing == "together"
    assert comparison([url, url], ["workload.max_tokens=7"]).sweep.workload.max_tokens == 7
    with pytest.raises(UsageError, match="--like"):
        comparison([b, url], [], Path(b))


def test_a_file_may_name_a_server_that_runs(tmp_path: Path, url: str) -> None:
    text = f"launcher: attach\nurl: {url}/v1\nworkload: {{max_tokens: 60, prompts_per_class: 2}}\n"
    file = written(tmp_path / "it.yaml", text)
    side = comparison([file]).a
    assert (side.plan.sweep.url, side.point.method) == (url, "unknown")
    with pytest.raises(UsageError, match="a search starts a server for every Point"):
        prepare(parse_sweep(text))
    for key in ("args: {threads: 1}", "env: {A: b}", "space: {none: }", "draft: x", "server: x"):
        chosen = written(tmp_path / "chosen.yaml", text + key + "\n")
        with pytest.raises(UsageError, match="cannot be chosen for a server that runs already"):
            comparison([chosen])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("launcher: attach", "needs the `url`"),
        ("url: http://127.0.0.1:1", "it is for launcher: attach"),
        ("launcher: attach\nurl: 127.0.0.1:1", "no address of a server"),
    ],
)
def test_where_a_server_is_must_be_said_once(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        comparison([written(tmp_path / "it.yaml", text)])
    assert message in str(caught.value)


def test_other_models_are_said_to_be_so(a: str, tmp_path: Path) -> None:
    with canned({"/v1/models": {"data": [{"id": "another/model"}]}}, tmp_path / "log") as server:
        compared = comparison([a, server.base_url])
    assert not compared.same_model
    assert any("different models" in note for note in compared.notes())
    assert ("model", "smollm2-135m", "another/model") in list(compared.differences())


def test_what_no_side_can_be(a: str, b: str) -> None:
    with pytest.raises(UsageError, match="takes two configurations"):
        comparison([a, b, a])
    with pytest.raises(UsageError, match=r"a server is named by its URL: http://localhost:8000"):
        comparison([a, "localhost:8000"])
    with pytest.raises(UsageError, match=r"cannot read the sweep file nowhere\.yaml"):
        comparison([a, "nowhere.yaml"])
    with pytest.raises(UsageError, match=r"A \(http://127.0.0.1:1\): .*nothing answers there"):
        comparison(["http://127.0.0.1:1", a])
    with pytest.raises(UsageError, match="no address of a server"):
        comparison([a, "ftp://127.0.0.1"])


def test_a_key_is_sent_and_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "like.yaml", OFF)
    monkeypatch.setenv("MY_KEY", "PLANTED-KEY")
    with guarded("PLANTED-KEY") as url:
        compared = comparison([url], ["api_key_env=MY_KEY"], Path(file))
        folder = RunFolder(tmp_path / "run")
        target = compared.a.plan.setup(folder).target(AttachedEndpoint(url, tmp_path / "log"))
        assert target.headers == {"Authorization": "Bearer PLANTED-KEY"}
        monkeypatch.setenv("MY_KEY", "")
        with pytest.raises(UsageError, match="asks for an API key"):
            comparison([url], ["api_key_env=MY_KEY"], Path(file))
    for shown in (compared.record(), compared.environment(), compared.shared_yaml(), target):
        assert "PLANTED-KEY" not in str(shown)
