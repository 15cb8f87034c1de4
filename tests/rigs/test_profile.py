"""`tuner profile` on the real SGLang and vLLM: a trace of each server, kept, and summed up side by side."""

import gzip
import json
from pathlib import Path

import pytest
import yaml

import tuner
from results.profile import Profile, Stage, Work
from results.store import RunFolder
from sweeps.sweep import load_sweep
from tests.rigs.needed import needed_rig

pytestmark = [pytest.mark.rig, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples"
EAGLE3 = {"sglang": "EAGLE3 num_steps=3 topk=1", "vllm": "eagle3 num_speculative_tokens=3"}


def profiled(engine: str, folder: Path, *arguments: str) -> tuple[RunFolder, int]:
    """The run folder and the exit code of `tuner profile` on an example, made small."""
    example = json.loads(load_sweep(EXAMPLES / f"{engine}-cpu.yaml").model_dump_json())
    example |= {"server": str(needed_rig(engine))}
    example["workload"] |= {"prompts_per_class": 4, "max_tokens": 24}
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump(example))
    kept = RunFolder(folder / "run")
    with pytest.raises(SystemExit) as end:
        tuner.main(["profile", str(file), "--run", str(kept.path), *arguments])
    return kept, int(end.value.code or 0)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_draft_model_s_step_is_taken_apart(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, code = profiled(engine, tmp_path, "--point", EAGLE3[engine])
    assert code == 0
    baseline, eagle3 = kept.profiles()
    assert (baseline.arm, eagle3.arm) == ("baseline", "point")
    for profile in (baseline, eagle3):
        check(profile)
        check_kept(kept.path / profile.traces[0])
    assert baseline.trace.share(Stage.DRAFT) == 0
    assert 0.1 < eagle3.trace.share(Stage.DRAFT) < 0.9
    assert baseline.tokens_per_step == pytest.approx(1, abs=0.1)
    assert eagle3.tokens_per_step is not None and eagle3.tokens_per_step > 1.3
    assert bool(baseline.step_times_s) is (engine == "sglang")  # vLLM keeps none
    printed = " ".join(capsys.readouterr().out.split())
    assert "A step of point takes" in printed
    assert "baseline ms share a token point ms share a token" in printed
    assert '<section id="profile">' in kept.report_file.read_text()


def check(profile: Profile) -> None:
    trace = profile.trace
    assert trace.device == "cpu"
    assert trace.steps > 5
    assert trace.prefills >= 2
    assert sum(trace.work_s.values()) == pytest.approx(trace.wall_s)
    assert sum(trace.stages_s.values()) == pytest.approx(trace.wall_s)
    for part in (Work.MATMUL, Work.ATTENTION, Work.SAMPLING, Work.HOST, Stage.TARGET):
        assert trace.share(part) > 0, part
    named = (Work.MATMUL, Work.COPIES, Work.SAMPLING)
    assert max(named, key=trace.share) is Work.MATMUL
    assert trace.share(Work.ALL_REDUCE) == trace.share(Work.MOE) == 0


def check_kept(file: Path) -> None:
    """It is what Perfetto loads: a whole trace in Chrome's format."""
    found = json.loads(gzip.decompress(file.read_bytes()))
    assert len(found["traceEvents"]) > 1000
    assert [*file.parent.glob("writing-*")] == []
