"""Asking an engine's own Python: what comes back, when it is asked again, and what a failure says."""

import sys
from pathlib import Path

import pytest

from launchers.engines.probe import Answer, Probe
from launchers.place import MACHINE
from results.errors import UsageError

ECHO = "import json, sys\nfor line in sys.stdin: print(json.dumps({'asked': json.loads(line)}), flush=True)\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))


def ask(tmp_path: Path, text: str, question: dict[str, object], env: dict[str, str] | None = None) -> Answer:
    path = tmp_path / "script.py"
    path.write_text(text)
    with Probe(MACHINE, sys.executable, path, env) as probe:
        return probe.ask(question)


def test_one_process_answers_every_question(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "import json, os, sys\nfor _ in sys.stdin: print(json.dumps({'pid': os.getpid()}), flush=True)\n"
    )
    with Probe(MACHINE, sys.executable, path) as probe:
        assert not probe.is_running
        assert probe.ask({"a": 1}) == probe.ask({"b": 1})
        assert probe.is_running


def test_it_is_asked_once_until_something_changes(tmp_path: Path) -> None:
    count = tmp_path / "count"
    text = f"open({str(count)!r}, 'a').write('x')\n{ECHO}"
    for _ in range(3):
        assert ask(tmp_path, text, {"a": 1}) == {"asked": {"a": 1}}
    assert count.read_text() == "x"
    ask(tmp_path, text, {"a": 2})
    ask(tmp_path, text, {"a": 1}, {"VLLM_TARGET_DEVICE": "cpu"})
    ask(tmp_path, text + "# changed\n", {"a": 1})
    assert count.read_text() == "xxxx"


def test_a_file_that_a_question_names_is_part_of_it(tmp_path: Path) -> None:
    count, settings = tmp_path / "count", tmp_path / "settings.json"
    text = f"open({str(count)!r}, 'a').write('x')\n{ECHO}"
    for content in ("{}", "{}", "[]"):
        settings.write_text(content)
        ask(tmp_path, text, {"argv": ["--config", str(settings)]})
    assert count.read_text() == "xx"


def test_it_imports_nothing_that_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    assert ask(tmp_path, ECHO, {}) == {"asked": {}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import no_such_engine\n", "No module named 'no_such_engine'"),
        ("import sys; sys.exit(3)\n", "exit code 3"),
        ("", "no answer (exit code 0)"),
    ],
)
def test_a_failure_says_why_and_is_not_remembered(tmp_path: Path, text: str, told: str) -> None:
    for _ in range(2):
        assert told in ask(tmp_path, text, {})["error"]


def test_an_interpreter_is_found_by_name_path_or_not_at_all(tmp_path: Path) -> None:
    assert MACHINE.program(sys.executable) == sys.executable
    assert Path(MACHINE.program("python3")).is_absolute()
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert MACHINE.program(str(link)) == str(link)  # a venv's interpreter is a link, and must stay one
    with pytest.raises(UsageError, match="there is no such program"):
        MACHINE.program(str(tmp_path / "nowhere"))
