"""The command line: exit codes, messages, and that nothing heavy is loaded for help."""

import io
import json
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

import tuner
from sweeps.sweep import json_schema, parse_sweep

ROOT = Path(__file__).parents[1]
QUICK = """
engine: fake
space: {fake-ngram: {n: [4], m: [8]}}
workload: {max_tokens: 60, prompts_per_class: 2, classes: [chat]}
confirm: {looks: [2]}
patience: {client_share: 1, foreign_cores: 100, min_window_s: 0}
"""


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    file = tmp_path / "sweep.yaml"
    file.write_text(QUICK)
    return file


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        tuner.main([str(a) for a in arguments])
    return int(end.value.code or 0)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The message of a usage error."""
    assert run(*arguments) == 2
    return capsys.readouterr().err


def test_a_sweep_from_init_to_report(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run("sweep", sweep_file, "--run", folder) in (0, 4)
    assert "Report:" in capsys.readouterr().out
    page = (folder / "report.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    for form in ("md", "csv", "json"):
        assert run("report", folder, "--format", form) == 0
        assert "fake-ngram" in capsys.readouterr().out
    assert json.loads(_output(capsys, "report", folder, "--format", "json"))
    assert run("report", folder, "--output", tmp_path / "page.html") == 0
    assert (tmp_path / "page.html").read_text() == (folder / "report.html").read_text()


def test_two_runs_side_by_side(sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run("sweep", sweep_file, "--run", first)
    shutil.copytree(first, second)
    capsys.readouterr()
    assert "no paired measurement" in _output(capsys, "report", first, second, "--format", "md")
    assert json.loads(_output(capsys, "report", first, second, "--format", "json"))["paired"] is False
    assert str(second / "beside-first.html") in _output(capsys, "report", first, second)
    assert (second / "beside-first.html").read_text().startswith("<!doctype html>")
    assert "no such form" in refused(capsys, "report", first, second, "--format", "csv")
    assert "or two" in refused(capsys, "report", first, second, first)


@pytest.mark.parametrize("works", [True, False, webbrowser.Error("no browser")])
def test_a_report_is_opened_where_there_is_a_browser(
    works: bool | Exception,
    sweep_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []

    def browser(address: str) -> bool:
        opened.append(address)
        if isinstance(works, Exception):
            raise works
        return works

    monkeypatch.setattr(webbrowser, "open", browser)
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(sweep_file, folder / "sweep.yaml")
    assert run("report", folder, "--open") == 0
    assert opened == [(folder / "report.html").as_uri()]
    assert ("No browser could be started" in capsys.readouterr().err) is (works is not True)


def _output(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert run(*arguments) == 0
    return capsys.readouterr().out


def test_init_writes_a_file_that_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new.yaml"
    assert run("init", file) == 0
    assert "exists" in refused(capsys, "init", file)
    assert run("init", file, "--force") == 0
    output = _output(
        capsys, "sweep", file, "--dry-run", "--set", "engine=fake", "--set", "args={}", "--set", "space={}"
    )
    assert "canonical points" in output


COMMAND = "vllm serve some/model -tp 2 --api-key PLANTED-KEY --spec-method ngram --spec-tokens 3"


@pytest.mark.parametrize("source", ["words", "file", "@file", "stdin"])
def test_init_from_a_launch_command(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, file = tmp_path / "serve.sh", tmp_path / "new.yaml"
    script.write_text(f"#!/bin/sh\nexec {COMMAND}\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(COMMAND))
    given = {"words": COMMAND, "file": str(script), "@file": f"@{script}", "stdin": "-"}[source]
    output = _output(capsys, "init", file, "--from", given)
    sweep = parse_sweep(file.read_text())
    assert (sweep.engine, sweep.model, sweep.args) == ("vllm", "some/model", {"tensor-parallel-size": 2})
    assert sweep.space == {"ngram": {"num_speculative_tokens": [1, 2, 3, 4, 5]}}
    assert "- --api-key holds a secret" in output
    assert "PLANTED-KEY" not in output + file.read_text()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ollama serve", "the command runs 'ollama'"),
        ("@/nowhere/serve.sh", "cannot read"),
        ("vllm serve 'm", "closed"),
    ],
)
def test_init_from_what_is_not_understood_writes_nothing(
    command: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new.yaml"
    assert message in refused(capsys, "init", file, "--from", command)
    assert not file.exists()
    file.write_text("mine")
    assert "exists" in refused(capsys, "init", file, "--from", COMMAND)
    refused(capsys, "init", file, "--from", command, "--force")
    assert file.read_text() == "mine"


def test_dry_run_starts_nothing(sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = _output(capsys, "sweep", sweep_file, "--dry-run", "--run", tmp_path / "run")
    assert "1 canonical points" in output
    assert "fake-server" in output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("budgt.trials=3", "unknown key (did you mean 'budget'?)"),
        ("space={fake-ngrm: {}}", "fake-ngrm"),
        ("space={fake-ngram: {size_n: [3]}}", "'size_n' is no knob of fake-ngram"),
        ("space={fake-ngram: {n: [99]}}", "99 is outside the engine's range 1 to 8"),
        ("space={fake-ngram: {n: []}}", "no value given"),
        ("workload.files=[/nowhere/prompts.jsonl]", "/nowhere/prompts.jsonl"),
        ("workload.classes=[code_edits]", "did you mean 'code_edit'?"),
        ("workload.prompts_per_class=1000", "an arm is asked 1000"),
        ("load=[{closed: 1}, {closed: 0}]", "load.1: closed needs at least 1 request in flight, not 0"),
        ("load=[{closed: true}]", "load.0: a pace needs a whole number here, not True"),
        ("load=[{replay: /nowhere/trace}]", "load.0: cannot read the trace /nowhere/trace"),
        (
            "workload={random_tokens: true, prompts_per_class: 1000000000}",
            "are asked for: make 10,000",
        ),
        ('workload.files=["a\\0b"]', "a text with a null character"),
        ("load=[{closed: 64}]", "an arm is asked 128"),
        ("workload.context=[512, 512]", "a length is named twice"),
        ("workload.context=[10]", "use 0 for prompts as they are"),
        ("workload.context=[1000000]", "there is text for about"),
        ("weights={classes: {chatt: 2}}", "weights.classes: 'chatt' is not measured"),
        ("weights={paces: {closed(1): 0}}", "weights.paces: all are 0"),
        ("weights={contexts: {4096: 2}}", "weights.contexts: '4096' is not measured"),
        ("weights={classes: {chat: -1}}", "weights.classes.chat"),
        ("args={nonsense: 1}", "no flag --nonsense"),
        ("engine=llamacp", "engine"),
    ],
)
def test_mistakes_in_the_sweep_file(
    sweep_file: Path, capsys: pytest.CaptureFixture[str], override: str, message: str
) -> None:
    assert message in refused(capsys, "sweep", sweep_file, "--dry-run", "--set", override)


LONG = "x" * 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "{sweep}", "--hours", "x"), "expected a number, not 'x'"),
        (("sweep", "{sweep}", "--hours", "nan"), "expected a number, not 'nan'"),
        (("sweep", "{sweep}", "--hours", "inf"), "budget.hours: expected a number above 0"),
        (("sweep", "{folder}"), "Is a directory; `tuner init` writes a sweep file"),
        (("sweep", LONG), "File name too long"),
        (("sweep", "{sweep}", "--run", LONG), "File name too long"),
        (("sweep", "{sweep}", "--run", "{sweep}"), "is a file: name another folder with --run"),
        (("init", LONG), "File name too long"),
        (("list", LONG), "File name too long"),
        (("reap", LONG), "File name too long"),
        (("status", "n\u00f6 pe"), "there is no folder n\u00f6 pe"),
        (("capacity", "{folder}", "--low", "nan"), "expected a number, not 'nan'"),
        (("profile", "{folder}", "--seconds", "0"), "expected a number from 0.1 to 3600, not '0'"),
        (("export", "{folder}", "--port", "0"), "expected a whole number from 1 to 65535, not '0'"),
        (("export", "{folder}", "--trial", "2.5"), "expected a whole number, not '2.5'"),
        (("export", "{folder}", "--as", "comand"), "no such form (did you mean 'command'?)"),
        (("export", "{folder}", "--trial", "0", "-o", "{folder}/no/such/file"), "cannot write"),
        (("report", "{folder}", "--format", "htlm"), "no such form (did you mean 'html'?)"),
        (("report", "{folder}", "-o", "{folder}/no/such/file"), "No such file or directory"),
        (("report", "{folder}", "-o", "{folder}"), "Is a directory"),
    ],
)
def test_a_mistake_on_the_command_line(
    run_folder: Path,
    sweep_file: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    given = [a.format(folder=run_folder, sweep=sweep_file) for a in arguments]
    told = " ".join(refused(capsys, *given).replace("\u2502", " ").split())
    assert message in told
    assert "Input should" not in told


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("once")
    (base / "sweep.yaml").write_text(QUICK)
    run("sweep", base / "sweep.yaml", "--run", base / "run")
    return base / "run"


@pytest.fixture
def run_folder(run_once: Path, tmp_path: Path) -> Path:
    """A finished run that a test may damage."""
    return Path(shutil.copytree(run_once, tmp_path / "finished"))


@pytest.mark.parametrize("command", ["report", "status", "export"])
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("blocks.jsonl", b"\xff\xfe\n", "blocks.jsonl, line 1 is damaged"),
        ("blocks.jsonl", b"{}\n", "blocks.jsonl, line 1 is damaged"),
        ("trials.jsonl", b"[1]\n", "trials.jsonl, line 1 is damaged"),
        ("trials.jsonl", None, "trials.jsonl: Is a directory"),
        ("blocks.jsonl", None, "cannot read"),
        ("sweep.yaml", b"", "sweep.yaml is empty: it is the run's own copy of its sweep: restore it"),
        ("sweep.yaml", b"\xff", "it is not UTF-8 text; it is the run's own copy"),
        ("sweep.yaml", b"budget: 3", "sweep.yaml: budget: expected a section"),
    ],
)
def test_a_damaged_run_folder(
    run_folder: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    file: str,
    content: bytes | None,
    message: str,
) -> None:
    (run_folder / file).unlink()
    if content is None:
        (run_folder / file).mkdir()
    else:
        (run_folder / file).write_bytes(content)
    assert message in refused(capsys, command, run_folder)


def test_raw_records_that_are_not_ours_spoil_no_report(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [*run_folder.rglob("*.parquet")]
    assert files
    for file in files:
        pq.write_table(pa.table({"a": [1]}), file)
    assert run("report", run_folder) == 0


def test_other_errors_of_the_system_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise FileNotFoundError(2, "No such file", "/of/our/own")

    monkeypatch.setattr(tuner, "app", broken)
    with pytest.raises(FileNotFoundError):
        tuner.main([])


def test_an_empty_prompt_file(sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    message = refused(capsys, "sweep", sweep_file, "--set", f"workload.files=[{tmp_path / 'empty.jsonl'}]")
    assert "empty.jsonl" in message


def test_a_prompt_longer_than_the_context(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [{"id": str(n), "prompt": f"{n} " + "word " * 5000, "class": "chat"} for n in range(4)]
    lines = [json.dumps(prompt) for prompt in prompts]
    (tmp_path / "long.jsonl").write_text("\n".join(lines))
    changes = [
        "--set",
        "workload.endpoint=completions",
        "--set",
        f"workload.files=[{tmp_path / 'long.jsonl'}]",
        "--run",
        str(tmp_path / "run"),
    ]
    assert "do not fit into the context" in refused(capsys, "sweep", sweep_file, *changes)


@pytest.mark.parametrize("content", [None, b"not a model", b"GGUF\x03\x00\x00\x00"])
def test_a_model_that_cannot_be_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    model, file = tmp_path / "model.gguf", tmp_path / "sweep.yaml"
    file.write_text(f"model: {model}\n")
    if content is not None:
        model.write_bytes(content)
    assert "model.gguf" in refused(capsys, "sweep", file, "--dry-run")


def test_a_run_folder_that_cannot_be_written(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    message = refused(capsys, "sweep", sweep_file, "--run", tmp_path / "file" / "run")
    assert "name another folder with --run" in message


def test_a_run_folder_of_another_sweep(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run("sweep", sweep_file, "--run", folder)
    assert "another sweep" in refused(capsys, "sweep", sweep_file, "--run", folder, "--set", "seed=5")


def test_a_comparison_from_dry_run_to_report(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, folder = tmp_path / "plain.yaml", tmp_path / "run"
    plain.write_text(QUICK.replace("{fake-ngram: {n: [4], m: [8]}}", "{none: }"))
    output = _output(capsys, "compare", plain, sweep_file, "--dry-run", "--run", folder)
    assert "method: A none, B fake-ngram" in output
    assert "fake-server" in output
    assert "Blocks" in output
    assert not folder.exists()
    assert run("compare", plain, sweep_file, "--run", folder) in (0, 4)
    assert "What differs" in capsys.readouterr().out
    for form in ("md", "csv", "json"):
        assert run("report", folder, "--format", form) == 0
        assert "closed(1)" in capsys.readouterr().out
    assert run("compare", sweep_file, "--run", tmp_path / "alone") == 4
    assert "Nothing to compare with: no verdict" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (["http://127.0.0.1:1"], "nothing answers there"),
        (["http://127.0.0.1:1", "http://127.0.0.1:2"], "A (http://127.0.0.1:1)"),
        (["/nowhere.yaml"], "cannot read the sweep file /nowhere.yaml"),
        (["127.0.0.1:8000"], "http://127.0.0.1:8000"),
        (["x://y"], "no address of a server"),
        (["a", "b", "c"], "two configurations"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_in_a_comparison(
    sides: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "compare", *sides, "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "/nowhere"],
        ["reap", "/nowhere"],
        ["sweep", "/nowhere.yaml"],
        ["report", ".", "--format", "pdf"],
    ],
)
def test_what_is_not_there(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *arguments).startswith("tuner: ")


def test_reap_without_leftovers(sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No server was left behind" in _output(capsys, "reap", tmp_path)


def test_help_names_every_exit_code_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, tuner\n"
        "try: tuner.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'optuna', 'matplotlib', 'pandas', 'pyarrow', 'scipy', 'numpy', 'torch', 'requests'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "sys.exit(', '.join(loaded) if loaded else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for number in (
        "0 done",
        "1 crash",
        "2 usage",
        "3 regression",
        "4 undecided",
        "5 invalid",
        "130 interrupted",
    ):
        assert number in " ".join(done.stdout.replace("\n", " ").split())


def test_the_schema_in_the_docs_is_the_current_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Written by `tuner schema > docs/sweep.schema.json`."""
    stored = json.loads((ROOT / "docs" / "sweep.schema.json").read_text())
    assert stored == json_schema()
    assert json.loads(_output(capsys, "schema")) == stored


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda f: f.name)
def test_every_example_fits_the_schema(file: Path) -> None:
    import jsonschema
    import yaml

    jsonschema.validate(yaml.safe_load(file.read_text()), json_schema())


@pytest.mark.rig  # the embedded engine's
@pytest.mark.parametrize("name", ["embedded", "map"])
def test_an_example_for_a_laptop_can_be_planned(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its prompts fit the lengths that it asks for."""
    assert f"name: {name}" in _output(capsys, "sweep", str(ROOT / "examples" / f"{name}.yaml"), "--dry-run")


def test_an_engine_without_a_profiler_is_refused_before_anything_starts(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert "has no profiler" in refused(capsys, "profile", sweep_file, "--run", folder)
    assert "has no profiler" in refused(capsys, "sweep", sweep_file, "--run", folder, "--profile")
    assert not folder.exists()
    (tmp_path / "empty").mkdir()
    assert "is no run folder" in refused(capsys, "profile", tmp_path / "empty")
