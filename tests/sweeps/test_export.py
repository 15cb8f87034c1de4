"""`tuner export`: which configuration, and the forms for a process, as bash, Docker and systemd read them."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, Cell, Failure, Phase, Point
from results.store import RunFolder
from sweeps.export.choice import Why, choose
from sweeps.export.export import export
from sweeps.export.result import Result
from sweeps.outcome import read_run
from sweeps.sweep import Sweep
from tests.exported import CELL, arm_with, program, ran, run_folder
from tests.records import arm, block, trial
from tuner import main

FAST, SLOW = (
    Point("ngram-simple", {"size_n": 4, "size_m": 8}),
    Point("ngram-simple", {"size_n": 4, "size_m": 48}),
)
ARGV = (
    "/opt/bin/llama-server",
    "--model",
    "/models/a.gguf",
    "--host",
    "127.0.0.1",
    "--port",
    "41234",
    "--jinja",
)
SWEEP = {"name": "first", "engine": "llamacpp"}
DUMP = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
slow = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
names = st.from_regex(r"[A-Z][A-Z0-9_]{3,9}X", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


def won(
    path: Path, argv: Sequence[str] = ARGV, sweep: Mapping[str, Any] = SWEEP, speed: float = 130.0
) -> RunFolder:
    fast = (FAST, {CELL: speed})
    return run_folder(path / "run", {**SWEEP, **sweep}, [fast, (SLOW, {CELL: 60.0})], arm_with(argv), [fast])


def dumping(*words: str) -> tuple[str, ...]:
    """A command line that prints its arguments and variables in place of serving."""
    return (sys.executable, "-c", DUMP, *words, "--host", "127.0.0.1", "--port", "41234")


def started(script: str, tmp_path: Path, **env: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of what bash started."""
    file = tmp_path / "script.sh"
    file.write_text(script, encoding="utf-8")
    ran("bash", "-n", file)
    argv, environment = json.loads(ran("bash", file, env=env))
    return argv, environment


class TestWhich:
    def test_the_winner_with_its_speed_up_and_its_cells(self, tmp_path: Path) -> None:
        found = export(won(tmp_path), "command")
        assert "# The winner of the run first: ngram-simple size_m=8 size_n=4" in found.text
        assert "beats the baseline: +30." in found.text
        assert "# Holds for code_edit @ closed(1). Nothing is claimed beyond." in found.text
        assert "SGLang 0.5.23, model abababababababab" in found.text
        assert found.notes == ()

    def test_cells_without_a_weight_are_not_claimed(self, tmp_path: Path) -> None:
        busy = Cell("code_edit", "closed(4)")
        fast = (FAST, {CELL: 130.0, busy: 60.0})
        sweep = {
            **SWEEP,
            "load": [{"closed": 1}, {"closed": 4}],
            "weights": {"paces": {"closed(4)": 0}},
            "workload": {"prompts_per_class": 4},
        }
        folder = run_folder(tmp_path / "run", sweep, [fast], arm_with(ARGV), [fast])
        text = export(folder, "command").text
        assert "# Holds for code_edit @ closed(1). Nothing is claimed beyond." in text
        assert "# Within code_edit the sign depends on the Cell" in text
        of_another = export(folder, "command", point="none").text
        assert "the sign depends" not in of_another  # of the winner, that is

    def test_the_baseline_if_nothing_beats_it(self, tmp_path: Path) -> None:
        folder = won(tmp_path, speed=80.0)
        found = export(folder, "command")
        assert choose(folder).point == BASELINE
        assert "No configuration beats the baseline." in found.text
        assert "No configuration beats the baseline." in found.notes[0]

    def test_nothing_while_nothing_is_confirmed(self, tmp_path: Path) -> None:
        folder = run_folder(tmp_path / "run", SWEEP, [(FAST, {CELL: 130.0})], arm_with(ARGV))
        with pytest.raises(UsageError, match="no winner to export: Not confirmed yet") as told:
            export(folder, "command")
        assert '--trial 1 ("ngram-simple size_m=8 size_n=4")' in str(told.value)

    def test_nothing_of_an_empty_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)  # elsewhere there may be runs, which are named too
        with pytest.raises(UsageError, match="Nothing has been measured yet"):
            export(run_folder(tmp_path / "run", SWEEP, [], arm_with(ARGV)), "command")
        with pytest.raises(UsageError, match=r"there is no folder .*/nothing \(runs here: .*/run\)"):
            export(RunFolder(tmp_path / "nothing"), "command")

    @pytest.mark.parametrize("named", [{"trial": 2}, {"point": SLOW.label}, {"point": SLOW.key}])
    def test_one_that_is_named(self, tmp_path: Path, named: dict[str, Any]) -> None:
        folder = won(tmp_path)
        found = export(folder, "command", **named)
        assert choose(folder, **named).why is Why.NAMED
        assert not choose(folder, **named).is_confirmed
        assert f"# A configuration of the run first: {SLOW.label}" in found.text
        assert "# NOT CONFIRMED: -40.0 % against the baseline in the search alone." in found.text

    def test_the_winner_stays_confirmed_when_it_is_named(self, tmp_path: Path) -> None:
        found = choose(won(tmp_path), trial=1)
        assert found.is_confirmed
        assert found.effect is not None
        assert found.note == ""

    def test_the_baseline_is_trial_0(self, tmp_path: Path) -> None:
        assert choose(won(tmp_path), trial=0).point == BASELINE

    def test_none_that_is_not_there_or_has_no_figure(self, tmp_path: Path) -> None:
        folder = won(tmp_path)
        with pytest.raises(UsageError, match="did you mean 'ngram-simple size_m=8 size_n=4'"):
            export(folder, "command", point="ngram-simple size_m=8")
        with pytest.raises(UsageError, match=r"--trial 9: no such configuration in this run \(3 trials\)"):
            export(folder, "command", trial=9)
        broken = Point("ngram-simple", {"size_n": 1, "size_m": 1})
        folder.add_trial(trial(3, broken, None, failure=Failure(Reason.START_OOM, "out of memory")))
        with pytest.raises(UsageError, match="has no figure: START_OOM: out of memory"):
            export(folder, "command", trial=3)

    def test_a_lossy_one_says_so(self, tmp_path: Path) -> None:
        folder = won(tmp_path)
        folder.add_trial(
            replace(folder.trials()[1], number=3, point=Point("x"), asked=SLOW, lossy="it guesses")
        )
        assert "LOSSY: it guesses" in export(folder, "command", trial=3).text

    def test_a_form_that_is_not_there(self, tmp_path: Path) -> None:
        folder = won(tmp_path)
        with pytest.raises(UsageError, match="did you mean 'compose'"):
            export(folder, "composer")
        with pytest.raises(UsageError, match=r"llamacpp has no such form .it has command, env, compose"):
            export(folder, "vllm-schedule")

    def test_no_server_that_somebody_else_runs(self, tmp_path: Path) -> None:
        folder = compared(tmp_path, attached="A", b_speed=80.0)
        with pytest.raises(UsageError, match=r"A .* is a server that somebody else runs"):
            export(folder, "command")


def compared(tmp_path: Path, b_speed: float, attached: str = "") -> RunFolder:
    """The folder of `tuner compare`."""
    a, b = replace(BASELINE, name="A"), replace(FAST, name="B")
    folder = RunFolder(tmp_path / "compared")
    folder.create()
    yaml = Sweep.model_validate(SWEEP).to_yaml()
    folder.write_text("sweep.yaml", yaml)
    folder.write_json(
        "environment.json", {"host": {"engine": "A: x 1; B: y 2"}, "served": {"B": {"model": "m"}}}
    )
    sides = [
        {
            "name": p.name,
            "given": f"{p.name}.yaml",
            "attached": p.name == attached,
            "unchecked": [],
            "sweep": yaml,
            "point": {"method": p.method, "knobs": dict(p.knobs), "name": p.name},
        }
        for p in (a, b)
    ]
    told = {"name": "compare-a-b", "sides": sides, "differences": [], "notes": [], "same_model": True}
    folder.write_json("compare.json", told)
    for number in range(4):
        arms = [
            replace(arm(p, {CELL: v + number * 0.1}), argv=(f"/{p.name}", *ARGV[1:]))
            for p, v in ((a, 100.0), (b, b_speed))
        ]
        folder.add_block(replace(block(number, Phase.CONFIRM, arms), compared_with=a))
    return folder


def test_the_faster_side_of_a_comparison(tmp_path: Path) -> None:
    folder = compared(tmp_path, b_speed=130.0)
    assert "exec /B" in export(folder, "command").text
    assert "y 2" in export(folder, "command").text
    other = export(folder, "command", point="A")
    assert "exec /A" in other.text
    assert "Side A, as it was named. B is 30.0 % faster" in other.notes[0]
    with pytest.raises(UsageError, match="no such side"):
        export(folder, "command", point="C")


def test_the_first_side_if_it_is_faster(tmp_path: Path) -> None:
    found = choose(compared(tmp_path, b_speed=80.0))
    assert found.point.name == "A"
    assert found.effect is not None
    assert found.effect.low > 0


def test_neither_side_if_none_is_faster(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no faster side to export: B is as fast as A"):
        export(compared(tmp_path, b_speed=100.0), "command")


class TestCommand:
    def test_bash_starts_the_same_arguments_and_variables(self, tmp_path: Path) -> None:
        point = Point("ngram-simple", {"NCCL_ALGO": "unset", "NCCL_PROTO": "LL"})
        measured = [(point, {CELL: 130.0})]
        sweep = {**SWEEP, "env": {"FOO": "a 'b' $c"}}
        folder = run_folder(tmp_path / "run", sweep, measured, arm_with(dumping("x y")), measured)
        found = export(folder, "command", host="0.0.0.0", port=9000)
        argv, environment = started(found.text, tmp_path, NCCL_ALGO="Ring")
        assert argv == ["x y", "--host", "0.0.0.0", "--port", "9000"]
        assert (environment["FOO"], environment["NCCL_PROTO"]) == ("a 'b' $c", "LL")
        assert "NCCL_ALGO" not in environment
        assert "env -u NCCL_ALGO" in read_run(folder)[0].command

    @pytest.mark.parametrize("host", ["0.0.0.0", "::1", "localhost", "gpu-1.example.com", "2gpus"])
    def test_any_address_is_listened_on(self, tmp_path: Path, host: str) -> None:
        argv, _ = started(export(won(tmp_path, dumping()), "command", host=host).text, tmp_path)
        assert argv == ["--host", host, "--port", "8080"]

    @pytest.mark.parametrize(
        "host",
        ["", " ", "a b", "http://a", "a:80", "[::1]", "300.1.2.3", "-a", "a_b", "a\n", "--x", "fe80::1%eth0"],
    )
    @pytest.mark.parametrize("form", ["command", "compose", "json"])
    def test_what_is_no_address_is_refused(self, tmp_path: Path, form: str, host: str) -> None:
        with pytest.raises(UsageError, match="expected an address without scheme, port or spaces"):
            export(won(tmp_path, dumping()), form, host=host)

    def test_the_usual_port_on_loopback(self, tmp_path: Path) -> None:
        argv, _ = started(export(won(tmp_path, dumping()), "command").text, tmp_path)
        assert argv == ["--host", "127.0.0.1", "--port", "8080"]

    def test_a_secret_is_asked_for_and_never_written(self, tmp_path: Path) -> None:
        env = {"HF_TOKEN": "planted", "UPSTREAM": "http://me:planted@proxy:80"}
        folder = won(tmp_path, dumping("--api-thing", "<secret>"), {"env": env})
        found = export(folder, "command")
        assert found.notes == ("To set: HF_TOKEN", "To set: UPSTREAM", "To set: API_THING")
        values = {"HF_TOKEN": "t $x", "UPSTREAM": "u", "API_THING": "k 'y'"}
        argv, environment = started(found.text, tmp_path, **values)
        assert argv[:2] == ["--api-thing", "k 'y'"]
        assert environment["HF_TOKEN"] == "t $x"
        done = subprocess.run(
            ["bash", str(tmp_path / "script.sh")],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode
        assert "HF_TOKEN: set it" in done.stderr
        for form in ("compose", "kubernetes", "json"):
            assert "planted" not in export(folder, form).text

    def test_it_passes_shellcheck(self, tmp_path: Path) -> None:
        file = tmp_path / "script.sh"
        file.write_text(export(won(tmp_path, sweep={"env": {"HF_TOKEN": "x", "FOO": "b c"}}), "command").text)
        ran(program("shellcheck"), file)

    @slow
    @given(value=texts, word=texts, name=names)
    def test_any_text_arrives(
        self, tmp_path_factory: pytest.TempPathFactory, value: str, word: str, name: str
    ) -> None:
        tmp_path = tmp_path_factory.mktemp("any")
        argv, environment = started(
            export(won(tmp_path, dumping(word), {"env": {name: value}}), "command").text, tmp_path
        )
        assert argv[0] == word
        assert environment[name] == value

    def test_a_variable_that_no_shell_can_set(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="'A-B' is no name that a shell"):
            export(won(tmp_path, sweep={"env": {"A-B": "1"}}), "command")


GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")


def by_docker(text: str, tmp_path: Path, **env: str) -> dict[str, str]:
    """The variables of an env file as Docker's own parser of such files reads them."""
    (tmp_path / "server.env").write_text(text, encoding="utf-8")
    service = {"image": "x", "env_file": [{"path": str(tmp_path / "server.env"), "format": "raw"}]}
    (tmp_path / "compose.json").write_text(json.dumps({"name": "x", "services": {"a": service}}))
    told = ran(
        program("docker-compose"), "-f", tmp_path / "compose.json", "config", "--format", "json", env=env
    )
    found: dict[str, str] = json.loads(told)["services"]["a"]["environment"]
    return {name: value.replace("$$", "$") for name, value in found.items()}


def by_systemd(text: str, tmp_path: Path) -> dict[str, str]:
    """The same as systemd's parser reads them; this program of its also expands $NAME: there must be none."""
    folder = tmp_path / "config" / "environment.d"
    folder.mkdir(parents=True)
    (folder / "a.conf").write_text(text, encoding="utf-8")
    told = ran(GENERATOR, env={"XDG_CONFIG_HOME": str(tmp_path / "config")})
    told = told.replace("\n", " ").replace(
        "\\`", "`"
    )  # which it escapes inside quotes, and shlex leaves alone
    return dict(line.partition("=")[::2] for line in shlex.split(told))


class TestOverNodes:
    """A server over two nodes is two commands; that of rank 0 is recorded."""

    SGLANG = ("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "192.0.2.7:25000")
    VLLM = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "192.0.2.7", "--master-port", "25000")

    def grouped(self, path: Path, engine: str, words: Sequence[str]) -> RunFolder:
        sweep = {"engine": engine, "launcher": "ray", "ray": {"nodes": 2}}
        return won(path, dumping(*words), {**sweep, "env": {"NCCL_SOCKET_IFNAME": "eth0"}})

    @pytest.mark.parametrize("rank", [0, 1])
    @pytest.mark.parametrize(
        ("engine", "recorded", "meeting"),
        [
            ("sglang", SGLANG, ["--dist-init-addr", "node-a:25000"]),
            ("vllm", VLLM, ["--master-addr", "node-a", "--master-port", "25000"]),
        ],
    )
    def test_one_script_starts_every_rank(
        self, tmp_path: Path, engine: str, recorded: Sequence[str], meeting: list[str], rank: int
    ) -> None:
        text = export(self.grouped(tmp_path, engine, recorded), "command").text
        assert "192.0.2.7" not in text  # the node of another day
        argv, environment = started(text, tmp_path, TUNER_RANK=str(rank), TUNER_HEAD="node-a")
        headless = ["--headless"] if engine == "vllm" and rank else []
        port = {"sglang": "30000", "vllm": "8000"}[engine]
        place = ["--nnodes", "2", "--node-rank", str(rank), *meeting]
        assert argv == [*place, "--host", "127.0.0.1", "--port", port, *headless]
        assert environment["NCCL_SOCKET_IFNAME"] == "eth0"

    def test_the_report_shows_that_its_command_is_one_of_several(self, tmp_path: Path) -> None:
        report, _ = read_run(self.grouped(tmp_path, "sglang", self.SGLANG))
        assert report.command.endswith("# rank 0 of 2; `tuner export` writes them all")

    @pytest.mark.parametrize("given", [{}, {"TUNER_RANK": "0"}, {"TUNER_RANK": "2", "TUNER_HEAD": "a"}])
    def test_it_asks_for_what_it_needs(self, tmp_path: Path, given: Mapping[str, str]) -> None:
        file = tmp_path / "script.sh"
        file.write_text(export(self.grouped(tmp_path, "sglang", self.SGLANG), "command").text)
        done = subprocess.run(
            ["bash", str(file)], env={**os.environ, **given}, capture_output=True, text=True
        )
        assert done.returncode != 0
        assert ("TUNER_HEAD" if given == {"TUNER_RANK": "0"} else "TUNER_RANK") in done.stderr
        assert "0 to 1" in done.stderr or "address of node 0" in done.stderr

    def test_other_forms_say_which_can(self, tmp_path: Path) -> None:
        folder = self.grouped(tmp_path, "vllm", self.VLLM)
        for form in ("env", "compose", "kubernetes"):
            with pytest.raises(UsageError, match="2 commands, one a node, which command and json can say"):
                export(folder, form)
        assert json.loads(export(folder, "json").text)["start"]["nodes"] == 2


class TestEnv:
    def test_docker_reads_it(self, tmp_path: Path) -> None:
        env = {"FOO": "a 'b' \"c\" $d #e", "HF_TOKEN": "planted"}
        words = (*ARGV, "--config", '{"method": "eagle3", "k": "it\'s"}')
        found = export(won(tmp_path, words, {"env": env}), "env")
        read = by_docker(found.text, tmp_path, HF_TOKEN="of the shell")
        assert read["FOO"] == env["FOO"]
        assert read["HF_TOKEN"] == "of the shell"
        assert shlex.split(read["TUNER_ARGS"]) == [*words[1:5], "--port", "8080", "--jinja", *words[8:]]
        assert "ExecStart=/opt/bin/llama-server $TUNER_ARGS" in found.text

    @pytest.mark.skipif(not GENERATOR.exists(), reason="systemd is not here")
    def test_systemd_reads_the_same(self, tmp_path: Path) -> None:
        words = (*ARGV, "--config", '{"method": "eagle3"}')
        text = export(
            won(tmp_path, words, {"env": {"FOO": "a 'b' \"c\"", "HF_TOKEN": "planted"}}), "env"
        ).text
        read = by_systemd("\n".join(line for line in text.splitlines() if line[0] != "#"), tmp_path)
        assert read["FOO"] == "a 'b' \"c\""
        assert shlex.split(read["TUNER_ARGS"]) == [*words[1:5], "--port", "8080", "--jinja", *words[8:]]
        assert "HF_TOKEN" not in read

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            ("a\nb", "a line break"),
            ("a\\b", "a backslash"),
            (" a", "a blank"),
            ("'a'", "a quote at its start"),
        ],
    )
    def test_what_the_two_read_otherwise_is_refused(self, tmp_path: Path, value: str, why: str) -> None:
        with pytest.raises(UsageError, match=f"FOO holds {why}.*: export it --as command"):
            export(won(tmp_path, sweep={"env": {"FOO": value}}), "env")

    @slow
    @given(value=texts, word=texts, name=names)
    def test_any_text_arrives_or_is_refused(
        self, tmp_path_factory: pytest.TempPathFactory, value: str, word: str, name: str
    ) -> None:
        tmp_path = tmp_path_factory.mktemp("any")
        try:
            text = export(won(tmp_path, (*ARGV, "--x", word), {"env": {name: value}}), "env").text
        except UsageError:
            return
        read = by_docker(text, tmp_path)
        assert read[name] == value
        assert shlex.split(read["TUNER_ARGS"])[-1] == word
        if GENERATOR.exists() and "$" not in text.replace("$TUNER_ARGS", ""):
            plain = "".join(f"{line}\n" for line in text.split("\n") if line[:1] != "#")
            assert by_systemd(plain, tmp_path).get(name, "") == value


class TestJson:
    def test_it_keeps_to_its_schema(self, tmp_path: Path) -> None:
        found = json.loads(export(won(tmp_path, sweep={"env": {"HF_TOKEN": "x", "FOO": "y"}}), "json").text)
        jsonschema.validate(found, Result.model_json_schema())
        assert (found["what"], found["confirmed"]) == ("winner", True)
        assert found["start"]["env"] == {"FOO": "y"}
        assert found["start"]["secrets"] == ["HF_TOKEN"]
        assert found["start"]["argv"][-3:] == ["--port", "8080", "--jinja"]
        assert found["start"]["nodes"] == 1
        assert found["speedup"]["low"] < found["speedup"]["ratio"] == pytest.approx(1.30, abs=0.01)
        assert found["configuration"] == {
            "label": FAST.label,
            "key": FAST.key,
            "method": "ngram-simple",
            "knobs": {"size_n": 4, "size_m": 8},
        }

    def test_one_that_is_not_confirmed_has_no_speed_up(self, tmp_path: Path) -> None:
        found = json.loads(export(won(tmp_path), "json", trial=2).text)
        assert (found["what"], found["confirmed"], found["speedup"]) == ("named", False, None)
        assert found["in_search"] == pytest.approx(0.6)


class TestCommandLine:
    def test_the_text_alone_on_stdout(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = won(tmp_path, speed=80.0)
        with pytest.raises(SystemExit) as ended:
            main(["export", str(folder.path), "--as", "json"])
        told = capsys.readouterr()
        assert ended.value.code == 0
        assert json.loads(told.out)["what"] == "baseline"
        assert "No configuration beats the baseline" in told.err

    def test_a_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "serve.sh"
        with pytest.raises(SystemExit) as ended:
            main(["export", str(won(tmp_path).path), "-o", str(file), "--port", "9001"])
        assert ended.value.code == 0
        assert "--port 9001" in file.read_text()
        with pytest.raises(SystemExit) as ended:
            main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "no" / "folder")])
        assert ended.value.code == 2
        assert "cannot write" in capsys.readouterr().err

    def test_a_mistake_is_one_sentence(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["export", str(won(tmp_path).path), "--as", "kubernetes", "--host", "0.0.0.0"])
        assert ended.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
