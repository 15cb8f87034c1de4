"""Draft lengths by batch size: SGLang's adaptive configuration and vLLM's schedule."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from launchers.engines.sglang.knobs import canonical
from launchers.engines.sglang.rules import check
from results.errors import UsageError
from results.records import ArmRun, Cell, Point
from results.store import RunFolder
from sweeps.export.export import export
from tests.exported import Speeds, run_folder
from tests.records import arm

ONE, EIGHT = Cell("code_edit", "closed(1)"), Cell("code_edit", "closed(8)")
THIRTY_TWO = Cell("code_edit", "closed(32)")
SGLANG = (
    *("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--attn-dp-size", "1"),
    *("--host", "127.0.0.1", "--port", "41234"),
)
VLLM = ("python3", "-m", "vllm.entrypoints.cli.main", "serve", "/m", "--host", "127.0.0.1", "--port", "41234")


def steps(n: int, topk: int = 1, **knobs: Any) -> Point:
    return Point("EAGLE3", {"num_steps": n, "topk": topk, **knobs})


def sglang_arm(point: Point, speeds: Speeds) -> ArmRun:
    words = [] if point.is_baseline else ["--speculative-algorithm", point.method]
    for flag, knob in (("num-steps", "num_steps"), ("eagle-topk", "topk")):
        words += [f"--speculative-{flag}", str(point.knobs[knob])] if knob in point.knobs else []
    words += ["--speculative-num-draft-tokens", "9"] if words else []
    return replace(arm(point, speeds), argv=(*SGLANG, *words))


def vllm_arm(point: Point, speeds: Speeds) -> ArmRun:
    config = {**point.knobs, "method": point.method, "model": "/head"}
    words = [] if point.is_baseline else ["--speculative-config", json.dumps(config)]
    return replace(arm(point, speeds), argv=(*VLLM, "--max-num-seqs", "64", *words))


def at(one: float, eight: float, thirty_two: float = 100.0) -> Speeds:
    return {ONE: one, EIGHT: eight, THIRTY_TWO: thirty_two}


Measured = Sequence[tuple[Point, Speeds]]
CHAINS: Measured = [
    (steps(1), at(115, 110, 90)),
    (steps(3), at(140, 105, 80)),
    (steps(5), at(150, 95, 60)),
]


def sglang(path: Path, measured: Measured, confirmed: Measured = ()) -> RunFolder:
    return run_folder(path / "run", {"name": "first", "engine": "sglang"}, measured, sglang_arm, confirmed)


def vllm(path: Path, measured: Measured, confirmed: Measured = ()) -> RunFolder:
    return run_folder(path / "run", {"name": "first", "engine": "vllm"}, measured, vllm_arm, confirmed)


def entries(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key.isdigit()}


class TestSglang:
    def test_the_best_steps_of_every_concurrency(self, tmp_path: Path) -> None:
        folder = sglang(tmp_path, CHAINS, [(steps(3), at(138, 104, 80))])
        found = export(folder, "sglang-adaptive", file=Path("/etc/adaptive.json"))
        config = json.loads(found.text)
        assert entries(config) == {
            "1": {"candidate_steps": [5]},
            "3": {"candidate_steps": [1]},
            "17": {"candidate_steps": [0]},
        }
        argv = shlex.split(config["tuner"]["command"])
        flags = dict(pairwise(argv))
        assert (flags["--speculative-num-steps"], flags["--speculative-num-draft-tokens"]) == ("5", "6")
        assert (flags["--speculative-eagle-topk"], flags["--port"]) == ("1", "30000")
        assert argv[-3:] == ["--speculative-adaptive", "--speculative-adaptive-config", "/etc/adaptive.json"]
        assert "closed(1): 5 tokens, +50.0 %, of the search alone, not confirmed (1 Block)" in found.notes
        assert "closed(32): no drafts, since no measured length is faster than none" in found.notes
        assert found.notes[-1] == f"Start it with: {config['tuner']['command']}"

    def test_the_file_passes_the_rules_of_the_engine(self, tmp_path: Path) -> None:
        file = tmp_path / "adaptive.json"
        file.write_text(export(sglang(tmp_path, CHAINS, CHAINS[1:2]), "sglang-adaptive", file=file).text)
        check(canonical(steps(5, adaptive=True, adaptive_config=str(file))), {})
        with pytest.raises(UsageError, match="not among adaptive's steps"):
            check(canonical(steps(4, adaptive=True, adaptive_config=str(file))), {})

    def test_a_confirmed_figure_counts_before_an_estimate(self, tmp_path: Path) -> None:
        below = [CHAINS[1], (steps(5), at(139, 90, 50))]
        found = export(sglang(tmp_path, CHAINS, below), "sglang-adaptive")
        assert any("closed(1): 3 tokens, +40.2 %, confirmed (4 Blocks)" in note for note in found.notes)
        above = [CHAINS[1], (steps(5), at(145, 90, 50))]
        found = export(sglang(tmp_path / "other", CHAINS, above), "sglang-adaptive")
        assert any("closed(1): 5 tokens, +45.2 %, confirmed (4 Blocks)" in note for note in found.notes)

    def test_neighbours_of_one_length_are_one_entry(self, tmp_path: Path) -> None:
        folder = sglang(tmp_path, [(steps(2), at(120, 120, 90))], [(steps(2), at(120, 120, 90))])
        assert entries(json.loads(export(folder, "sglang-adaptive").text)) == {
            "1": {"candidate_steps": [2]},
            "17": {"candidate_steps": [0]},
        }

    def test_a_tree_that_won_is_said_to_be_left_out(self, tmp_path: Path) -> None:
        tree = (steps(3, topk=4, draft_tokens=12), at(170, 120, 90))
        found = json.loads(export(sglang(tmp_path, [*CHAINS, tree], [tree]), "sglang-adaptive").text)
        assert entries(found)["1"] == {"candidate_steps": [5]}
        assert f"The winner of the run, {tree[0].label}, cannot be scheduled" in found["tuner"]["about"][1]

    def test_a_tree_alone_cannot(self, tmp_path: Path) -> None:
        tree = (steps(3, topk=4, draft_tokens=12), at(170, 120))
        with pytest.raises(UsageError, match=r"no EAGLE3 with topk=1 .* was measured: sweep"):
            export(sglang(tmp_path, [tree], [tree]), "sglang-adaptive")

    def test_nor_another_method(self, tmp_path: Path) -> None:
        ngram = (Point("NGRAM", {"draft_tokens": 8, "breadth": 1}), at(170, 120))
        with pytest.raises(UsageError, match="is for EAGLE3, EAGLE, NEXTN, not for NGRAM"):
            export(sglang(tmp_path, [ngram], [ngram]), "sglang-adaptive")

    def test_what_was_adaptive_is_no_entry(self, tmp_path: Path) -> None:
        adaptive = (steps(3, adaptive=True), at(170, 120, 110))
        found = json.loads(export(sglang(tmp_path, [*CHAINS, adaptive], [adaptive]), "sglang-adaptive").text)
        assert entries(found)["1"] == {"candidate_steps": [5]}
        assert found["tuner"]["command"].count("--speculative-adaptive ") == 1

    def test_chains_of_other_settings_are_no_entries(self, tmp_path: Path) -> None:
        other = (steps(7, attention_mode="decode"), at(190, 90, 50))
        found = json.loads(export(sglang(tmp_path, [*CHAINS, other], [CHAINS[1]]), "sglang-adaptive").text)
        assert entries(found)["1"] == {"candidate_steps": [5]}

    def test_one_concurrency_is_too_few(self, tmp_path: Path) -> None:
        one = [(steps(3), {ONE: 140.0})]
        with pytest.raises(UsageError, match=r"sweep several: `load: \[\{closed: 1\}, \{closed: 8\}\]`"):
            export(sglang(tmp_path, one, one), "sglang-adaptive")

    def test_nothing_to_adapt_where_nothing_pays(self, tmp_path: Path) -> None:
        slow = [(steps(3), at(80, 70, 60))]
        with pytest.raises(
            UsageError, match="pays at no measured number of requests in flight: run without it"
        ):
            export(sglang(tmp_path, slow, slow), "sglang-adaptive")

    @pytest.mark.parametrize("words", [("--enable-two-batch-overlap",), ("--attn-dp-size", "2")])
    def test_what_sglang_would_ignore(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        def with_words(point: Point, speeds: Speeds) -> ArmRun:
            found = sglang_arm(point, speeds)
            argv = [word for word in found.argv if word not in ("--attn-dp-size", "1")]
            return replace(found, argv=(*argv, *words))

        sweep = {"name": "first", "engine": "sglang"}
        folder = run_folder(tmp_path / "run", sweep, CHAINS, with_words, CHAINS[1:2])
        with pytest.raises(UsageError, match=f"SGLang ignores adaptive speculation with {words[0]}"):
            export(folder, "sglang-adaptive")


def tokens(n: int, **knobs: Any) -> Point:
    return Point("eagle3", {"num_speculative_tokens": n, **knobs})


LENGTHS: Measured = [(tokens(2), at(115, 110, 90)), (tokens(4), at(140, 105, 80))]


class TestVllm:
    def test_the_schedule_in_the_whole_command(self, tmp_path: Path) -> None:
        found = export(vllm(tmp_path, LENGTHS, LENGTHS[1:]), "vllm-schedule")
        argv = shlex.split(found.text.split("exec ")[1].replace("\\\n", " "))
        config = json.loads(argv[argv.index("--speculative-config") + 1])
        assert config == {
            "method": "eagle3",
            "model": "/head",
            "num_speculative_tokens": 4,
            "num_speculative_tokens_per_batch_size": [[1, 2, 4], [3, 16, 2], [17, 64, 0]],
        }
        assert argv[argv.index("--port") + 1] == "8000"
        assert "# batches of 3 to 16: 2 tokens" in found.text
        assert "# closed(1): 4 tokens, +40.2 %, confirmed (4 Blocks)" in found.text

    def test_without_speculation_where_none_pays(self, tmp_path: Path) -> None:
        slow = [(tokens(4), at(80, 70, 60))]
        found = export(vllm(tmp_path, slow, slow), "vllm-schedule")
        assert "--speculative-config" not in found.text
        assert "run without it" in found.notes[1]
        assert "run without it" in found.text

    def test_one_that_pays_somewhere_though_nothing_won(self, tmp_path: Path) -> None:
        mixed = [(tokens(4), at(130, 70, 60))]
        found = export(vllm(tmp_path, mixed, mixed), "vllm-schedule")
        assert '"num_speculative_tokens_per_batch_size": [[1, 2, 4], [3, 64, 0]]' in found.text

    def test_a_schedule_that_won_is_made_anew_from_single_lengths(self, tmp_path: Path) -> None:
        dynamic = (tokens(4, tokens_per_batch_size="1-4:4,5-:0"), at(150, 120, 110))
        found = export(vllm(tmp_path, [*LENGTHS, dynamic], [dynamic]), "vllm-schedule")
        assert "cannot be scheduled: this is its nearest" in found.text
        with pytest.raises(UsageError, match="measure it with single draft lengths"):
            export(vllm(tmp_path / "alone", [dynamic], [dynamic]), "vllm-schedule")

    def test_what_vllm_would_ignore(self, tmp_path: Path) -> None:
        def ranks(point: Point, speeds: Speeds) -> ArmRun:
            found = vllm_arm(point, speeds)
            return replace(found, argv=(*found.argv, "--data-parallel-size", "2"))

        folder = run_folder(tmp_path / "run", {"engine": "vllm"}, LENGTHS, ranks, LENGTHS[:1])
        with pytest.raises(UsageError, match="vLLM ignores a schedule with data parallelism"):
            export(folder, "vllm-schedule")

    def test_the_development_mode_is_not_deployed(self, tmp_path: Path) -> None:
        sweep = {"engine": "vllm", "env": {"VLLM_SERVER_DEV_MODE": "1", "OMP_NUM_THREADS": "1"}}
        folder = run_folder(tmp_path / "run", sweep, LENGTHS, vllm_arm, LENGTHS[1:])
        assert "DEV_MODE" not in export(folder, "command").text
        assert "OMP_NUM_THREADS=1" in export(folder, "command").text
