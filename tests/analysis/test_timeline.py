"""Load and GPUs on one clock: what is counted in each step, and where the Cells begin."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from analysis import timeline_figure
from analysis.summary import requests_by_cell
from analysis.timeline import MOST_STEPS, Recorded, Timeline, timeline
from results.records import BASELINE, ArmRun, Cell, GpuSample, Measurement, Point, Request
from tests import records
from tests.analysis import samples

CODE, CHAT = Cell("code_edit", "closed(1)"), Cell("chat", "closed(1)")
NGRAM = Point("ngram-simple")


def request(begin_s: float, end_s: float, tokens: int | None = 10, error: str | None = None) -> Request:
    """Its text comes in ten even pieces."""
    chunks = [begin_s + (end_s - begin_s) * (k + 1) / 10 for k in range(10)]
    return records.request(
        scheduled_s=begin_s,
        sent_s=begin_s,
        ended_s=end_s,
        chunk_s=chunks,
        output_tokens=tokens,
        error=error,
    )


def recorded(
    name: str,
    by_cell: Mapping[Cell, Sequence[Request]],
    gpu: Sequence[GpuSample] = (),
    point: Point = BASELINE,
) -> Recorded:
    measurements = tuple(replace(records.measurement(cell=c), requests=len(r)) for c, r in by_cell.items())
    run = ArmRun(point, (), 0.0, 0.0, 0.0, {}, measurements)
    return Recorded(name, run, [r for requests in by_cell.values() for r in requests], gpu)


def sample(at: float, cell: Cell = CODE, uuid: str = "GPU-0", power_w: float | None = 300.0) -> GpuSample:
    return GpuSample(cell.label, at, uuid, 0.5, None, power_w, 2e9, None, None, None)


def of(shown: Timeline | None, figure: str, arm: str = "baseline") -> list[tuple[float | None, ...]]:
    assert shown is not None
    (track,) = [t for t in shown.of(figure) if t.arm == arm]
    return [curve.values for curve in track.curves]


def test_tokens_are_counted_where_their_text_arrived() -> None:
    shown = timeline(1, [recorded("baseline", {CODE: [request(0, 5, 10), request(5, 10, 30)]})])
    (values,) = of(shown, "tokens_per_s")
    assert shown is not None and shown.spans[0].end_s == 10
    step_s = shown.tracks[0].curves[0].step_s
    assert sum(v or 0 for v in values) * step_s == pytest.approx(40)
    first, second = values[: len(values) // 2], values[len(values) // 2 :]
    assert sum(v or 0 for v in first[:-1]) < sum(v or 0 for v in second)


def test_requests_in_flight_are_a_mean_over_each_step() -> None:
    both = [request(0, 12), request(6, 12)]
    (values,) = of(timeline(1, [recorded("baseline", {CODE: both})]), "in_flight")
    assert values[0] == pytest.approx(1) and values[-1] == pytest.approx(2)


def test_tokens_are_unknown_without_usage_and_requests_are_still_shown() -> None:
    shown = timeline(1, [recorded("baseline", {CODE: [request(0, 5), request(5, 9, None)]})])
    assert shown is not None
    assert [t.figure for t in shown.tracks] == ["in_flight"]


def test_a_failed_request_has_no_tokens() -> None:
    failed = request(5, 10, None, error="reset")
    (values,) = of(timeline(1, [recorded("baseline", {CODE: [request(0, 5, 10), failed]})]), "tokens_per_s")
    assert values[-1] == 0


def test_a_cell_begins_at_the_same_moment_for_both() -> None:
    slow = recorded("baseline", {CODE: [request(0, 10)], CHAT: [request(0, 4)]})
    fast = recorded("winner", {CODE: [request(0, 6)], CHAT: [request(0, 3)]}, point=NGRAM)
    shown = timeline(7, [slow, fast])
    assert shown is not None
    assert [s.label for s in shown.spans] == [CODE.label, CHAT.label]
    assert shown.spans[0].end_s == 10 and shown.spans[1].begin_s > 10
    begins = [[c.begin_s for c in t.curves] for t in shown.of("in_flight")]
    assert begins[0] == begins[1] == [s.begin_s for s in shown.spans]
    lengths = [len(of(shown, "in_flight", arm)[0]) for arm in ("baseline", "winner")]
    assert lengths[0] > lengths[1]  # the faster one ends first


@pytest.mark.parametrize("seconds", [0.05, 3.0, 86400.0])
def test_a_timeline_stays_small_however_long_the_load_was(seconds: float) -> None:
    cells = {Cell(f"c{i}", "closed(1)"): [request(0, seconds)] for i in range(12)}
    shown = timeline(1, [recorded("baseline", cells)])
    values = [v for curve in of(shown, "in_flight") for v in curve]
    assert 12 <= len(values) <= MOST_STEPS + 2 * len(cells)


def test_power_is_that_of_all_gpus_and_the_clock_of_the_slowest() -> None:
    seen = [
        sample(100 + 0.1 * i, uuid=f"GPU-{g}", power_w=200.0 + 100 * g) for i in range(100) for g in (0, 1)
    ]
    seen = [replace(s, sm_clock_hz=1e9) if s.uuid == "GPU-1" else s for s in seen]
    shown = timeline(1, [recorded("baseline", {CODE: [request(0, 10)]}, seen)])
    assert set(of(shown, "power_w")[0]) == {500.0}
    assert set(of(shown, "sm_clock_hz")[0]) == {1e9}
    assert set(of(shown, "utilisation")[0]) == {0.5}


def test_what_the_driver_refuses_is_unknown() -> None:
    seen = [sample(100 + 0.1 * i, power_w=None) for i in range(100)]
    shown = timeline(1, [recorded("baseline", {CODE: [request(0, 10)]}, seen)])
    assert shown is not None and shown.of("power_w") == [] and shown.of("utilisation")


def test_turns_of_another_server_are_taken_out_of_the_time_of_the_gpus() -> None:
    """As with the requests, whose turns follow each other without a break."""
    first = [sample(100 + 0.1 * i, power_w=100.0) for i in range(51)]
    second = [sample(200 + 0.1 * i, power_w=400.0) for i in range(51)]
    shown = timeline(1, [recorded("baseline", {CODE: [request(0, 10)]}, [*first, *second])])
    assert shown is not None
    (values,) = of(shown, "power_w")
    assert len(values) * shown.tracks[0].curves[0].step_s == pytest.approx(10, abs=0.6)
    assert values[0] == 100 and values[-1] == 400


@pytest.mark.parametrize("requests", [[], [request(0, 1)], [request(0, 1)] * 3])
def test_records_that_do_not_fit_their_arm_draw_nothing(requests: Sequence[Request]) -> None:
    arm = recorded("baseline", {CODE: [request(0, 1)] * 2})
    assert timeline(1, [replace(arm, requests=requests)]) is None


def test_requests_belong_to_the_cells_in_their_order() -> None:
    one, two = request(0, 1), request(0, 2)
    measured: list[Measurement] = [replace(records.measurement(cell=c), requests=1) for c in (CODE, CHAT)]
    assert requests_by_cell(measured, [one, two]) == {CODE: [one], CHAT: [two]}


def test_the_figure_has_a_strip_for_everything_that_is_known() -> None:
    with_gpu, without = samples.better().timeline, samples.load_without_gpu()
    drawn, plain = timeline_figure.figure(with_gpu), timeline_figure.figure(without)
    assert drawn is not None and plain is not None
    for title in ("Output tokens per second", "Requests in flight", "Power of all GPUs, W", "GPUs busy"):
        assert f">{title}</text>" in drawn.svg
    assert "Power" not in plain.svg and plain.title == "Load over time"
    assert "tokens per second on average: baseline" in drawn.caption and "winner" in drawn.caption
    assert [k.label for k in drawn.keys] == ["baseline", "winner", *(c.label for c in samples.CELLS)]
    assert timeline_figure.figure(None) is None


def test_cells_are_numbered_even_where_no_tokens_are_known() -> None:
    unknown = {cell: [request(0, 5, None), request(5, 9, None)] for cell in (CODE, CHAT)}
    drawn = timeline_figure.figure(timeline(1, [recorded("baseline", unknown)]))
    assert drawn is not None
    numbers = re.findall(r"<text[^>]*>([12])</text>", drawn.svg)
    assert {"1", "2"} <= set(numbers) and drawn.caption.endswith("the load of both servers.")
