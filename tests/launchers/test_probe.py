"""Asking an engine's own Python: what comes back, when it is asked again, and what a failure says."""

import sys
from pathlib import Path

import pytest

from launchers.engines.probe import find_python, probe
from results.errors import UsageError


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


def test_the_last_line_is_the_answer(tmp_path: Path) -> None:
    asking = script(tmp_path, "import sys\nprint('a banner')\nprint('{\"given\": \"%s\"}' % sys.argv[1])\n")
    assert probe(sys.executable, asking, ["x"], cache_dir=tmp_path / "cache") == {"given": "x"}


def test_it_is_asked_once_until_something_changes(tmp_path: Path) -> None:
    cache, count = tmp_path / "cache", tmp_path / "count"
    text = f"open({str(count)!r}, 'a').write('x')\nprint('{{}}')\n"
    asking = script(tmp_path, text)
    for _ in range(3):
        probe(sys.executable, asking, cache_dir=cache)
    assert count.read_text() == "x"
    probe(sys.executable, asking, ["other"], cache_dir=cache)
    probe(sys.executable, asking, env={"OTHER": "1"}, cache_dir=cache)
    script(tmp_path, text + "# changed\n")
    probe(sys.executable, asking, cache_dir=cache)
    assert count.read_text() == "xxxx"


def test_it_imports_nothing_that_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    asking = script(tmp_path, "import json\nprint(json.dumps({'fine': True}))\n")
    assert probe(sys.executable, asking, cache_dir=tmp_path / "cache") == {"fine": True}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import no_such_engine\n", "No module named 'no_such_engine'"),
        ("import sys; sys.exit(3)\n", "exit code 3"),
        ("print('no answer')\n", "printed no answer, but 'no answer'"),
        ("", "printed no answer"),
    ],
)
def test_a_failure_says_why_and_is_not_remembered(tmp_path: Path, text: str, told: str) -> None:
    for _ in range(2):
        with pytest.raises(UsageError, match=told):
            probe(sys.executable, script(tmp_path, text), cache_dir=tmp_path / "cache")


def test_an_interpreter_is_found_by_name_path_or_not_at_all(tmp_path: Path) -> None:
    assert find_python(sys.executable) == sys.executable
    assert Path(find_python("python3")).is_absolute()
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert find_python(str(link)) == str(link)  # a venv's interpreter is a link, and must stay one
    with pytest.raises(UsageError, match="there is no such program"):
        find_python(str(tmp_path / "nowhere"))
