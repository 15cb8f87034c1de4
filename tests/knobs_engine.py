"""An Engine as the Space sees it: two methods, one rule, a dead and a lossy knob, the flag --batch."""

from collections.abc import Mapping, Sequence
from typing import cast

from launchers.engines.engine import Engine, Knob, Served
from results.errors import UsageError
from results.records import BASELINE_METHOD, DraftShape, Point

SERVED = Served("model", None, {}, {})


class KnobsEngine:
    """`tree` needs draft >= steps; at topk 1 its draft is dead. `lookup` has one open choice."""

    name = "knobs"
    no_custom_all_reduce = "--nccl-alone"
    memory_settings: Mapping[str, bool] = {"draft": False, "--batch": False, "--share": True}

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        return {
            BASELINE_METHOD: (),
            "tree": (
                Knob("steps", 3, 1, 16, grid=(1, 2, 3, 5)),
                Knob("topk", 1, 1, 8, grid=(1, 4)),
                Knob("draft", 4, 1, 64, grid=(4, 8)),
            ),
            "lookup": (
                Knob("n", 4, 1, 16, grid=(2, 4, 8)),
                Knob("kind", "plain", choices=("plain", "fuzzy"), grid=("plain", "fuzzy")),
                Knob("loose", False, choices=(False, True), optional=True),
                Knob("schedule", "", optional=True),
            ),
        }

    def check(self, point: Point, served: Served) -> None:
        for flag in point.flags:
            if flag not in ("--batch", "--share", "--tp", "--nccl-alone"):
                raise UsageError(f"no flag {flag}")
        if point.method == "tree" and point.knobs["topk"] != 1:
            draft, steps = point.knobs["draft"], point.knobs["steps"]
            if int(draft) < int(steps):
                raise UsageError(f"draft ({draft}) must be at least steps ({steps})")

    def command(self, point: Point, served: Served, port: int) -> tuple[str, ...]:
        flags = {**{f"--{k}": v for k, v in served.args.items()}, **point.flags}
        return tuple(f"{k}={v}" for k, v in flags.items() if v is not False)

    def torch_of(self, point: Point) -> None:
        return None

    def ranks(self, point: Point, served: Served) -> int:
        return int(point.flags.get("--tp", served.args.get("tp", 8)))

    def lossy(self, point: Point, served: Served) -> str:
        return "loose takes near misses" if point.knobs.get("loose") else ""

    def canonical(self, point: Point) -> Point:
        if point.method == "tree" and point.knobs["topk"] == 1:
            return Point("tree", {k: v for k, v in point.knobs.items() if k != "draft"})
        unset = {"loose": False, "schedule": ""}
        return Point(point.method, {k: v for k, v in point.knobs.items() if unset.get(k) != v})

    def draft_shape(self, point: Point) -> DraftShape | None:
        steps = int(point.knobs.get("steps", 0))
        return DraftShape(steps, int(point.knobs.get("draft", steps)), steps) if steps else None

    def starting_points(self, served: Served) -> Sequence[Point]:
        return [
            Point("tree", {"steps": 3, "topk": 1, "draft": 4}),
            Point("lookup", {"n": 5, "kind": "plain"}),
            Point("gone", {}),
        ]


def knobs_engine() -> Engine:
    return cast(Engine, KnobsEngine())
