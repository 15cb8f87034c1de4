"""Landscapes to replay: published tables, read from a folder that is given, and sweeps of our own.

The published tables are no part of this repository: a folder of CSV files with the columns engine, model,
hardware, concurrency, method, num_steps, topk, num_draft_tokens, throughput_tok_s, accept_len, baseline,
source, workload, context_tokens, p_min, note. Rows of different sources are never pooled.
"""

import csv
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.replay import Landscape, Measured
from launchers.engines.llamacpp.knobs import METHODS as LLAMACPP
from launchers.engines.llamacpp.knobs import starting_points as llamacpp_starts
from launchers.engines.sglang.knobs import starting_points as sglang_starts
from launchers.engines.vllm.knobs import starting_points as vllm_starts
from results.records import Cell, DraftShape, KnobValue, Point, SpecCounters

Row = Mapping[str, str]
OWN = Path(__file__).parent / "landscapes"
LOOKUPS = ("ngram", "NGRAM")
DRAFTS = 1000  # of a published acceptance length nothing else is known


def published(folder: Path) -> list[Landscape]:
    """Every table of the folder that has more than one configuration to choose from."""
    noise = block_noise(folder)
    tables: dict[str, list[Row]] = {}
    for number in ("01", "02", "05", "06", "07", "08", "11"):
        for path in sorted(folder.glob(f"{number}_*.csv")):
            for name, rows in _experiments(number, _read(path)).items():
                tables[f"{number} {name}"] = rows
    found = [_landscape(name, rows, noise) for name, rows in tables.items()]
    return [f for f in found if f is not None]


def block_noise(folder: Path) -> float:
    """Standard deviation of one Block's log ratio, from repeats of one configuration (table 14)."""
    groups = defaultdict(list)
    for path in folder.glob("14_*.csv"):
        for row in _read(path):
            if row["arm"].startswith("EAGLE3"):
                key = (row["source"], row["arm"], row["workload"], row["batch"])
                groups[key].append(math.log(float(row["throughput_tok_s"])))
    repeated = [v for v in groups.values() if len(v) > 1]
    if not repeated:
        return 0.02
    squares = sum((x - statistics.fmean(v)) ** 2 for v in repeated for x in v)
    one = math.sqrt(squares / sum(len(v) - 1 for v in repeated))
    return one * math.sqrt(2.0)  # of two arms


def own() -> list[Landscape]:
    """Sweeps of real servers, recorded by `python -m bench.record_landscape`."""
    return [_own(path) for path in sorted(OWN.glob("*.csv"))]


def _own(path: Path) -> Landscape:
    table: dict[str, dict[Cell, Measured]] = defaultdict(dict)
    points, shapes = {}, {}
    noise = 0.05
    for row in _read(path):
        point = Point(row["method"], json.loads(row["knobs"]))
        points[point.key] = point
        shapes[point.key] = DraftShape(*(int(row[c]) for c in ("depth", "draft_tokens", "passes", "topk")))
        counts = SpecCounters(
            int(row["drafts"]),
            int(row["drafted"]),
            int(row["accepted"]),
            tuple(map(int, row["accepted_per_position"].split())),
        )
        measured = Measured(float(row["log_speedup"]), counts, float(row["steps"]))
        table[point.key][Cell(row["class"], row["pace"])] = measured
        noise = float(row["block_noise"])
    starts = _own_starts(points)
    return Landscape(f"own {path.stem}", table, points, shapes, starts, noise)


def _own_starts(points: Mapping[str, Point]) -> list[Point]:
    methods = list(dict.fromkeys(p.method for p in points.values()))
    if methods[0] in LLAMACPP:
        return llamacpp_starts({m: LLAMACPP[m].knobs for m in methods})
    return sglang_starts(methods)


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _experiments(number: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows that may be compared with each other: of one source, model and place."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        run = row["source"].rpartition(":")[2] if number == "08" else ""
        name = " ".join(filter(None, [row["model"], row["hardware"], run]))
        name += f" {row['source'].partition(':')[0].rpartition('/')[2]}" if number in ("01", "05") else ""
        if driver := re.search(r"P2Pdriver=\d", row["note"]):  # of the machine, no server can choose it
            name += f" {driver[0]}"
        if number == "02" and "draft=" in row["note"]:
            name += " " + row["note"].partition("draft=")[2]
        found[name].append(row)
    if number == "02":  # the baseline of a model serves both of its drafters
        for name in list(found):
            bases = [n for n in found if name != n and name.startswith(n)]
            found[name] = [r for n in bases for r in found[n] if r["baseline"] == "1"] + found[name]
    return found


def _landscape(name: str, rows: Sequence[Row], noise: float) -> Landscape | None:
    base, speeds, lengths = _tables(rows)
    measured = {cell for cell in base if sum(cell in s for s in speeds.values()) > 1}
    complete = {k: p for k, p in _points(rows).items() if measured and measured <= speeds[k].keys()}
    if len(complete) < len(speeds):  # the Cells that the most Points share, else the most measured one
        most = max(base, key=lambda c: sum(c in s for s in speeds.values()), default=None)
        measured = {most} if most is not None else set()
        complete = {k: p for k, p in _points(rows).items() if most in speeds[k]}
    if len(complete) < 2:
        return None
    table = {
        k: {c: _measured(speeds[k][c] / base[c], lengths[k].get(c), p) for c in sorted(measured, key=str)}
        for k, p in complete.items()
    }
    shapes = {k: s for k, p in complete.items() if (s := _shape(p)) is not None}
    return Landscape(name, table, complete, shapes, _starts(rows, complete), noise)


def _tables(
    rows: Sequence[Row],
) -> tuple[dict[Cell, float], dict[str, dict[Cell, float]], dict[str, dict[Cell, float]]]:
    """Throughput of the baseline by Cell, of every Point by Cell, and acceptance lengths."""
    base: dict[Cell, list[float]] = defaultdict(list)
    speeds: dict[str, dict[Cell, list[float]]] = defaultdict(lambda: defaultdict(list))
    lengths: dict[str, dict[Cell, float]] = defaultdict(dict)
    for row in rows:
        cell = Cell(
            f"{row['workload']} {row['context_tokens']}".strip() or "load", f"closed({row['concurrency']})"
        )
        if _is_artefact(row):
            continue
        if row["baseline"] == "1":
            base[cell].append(float(row["throughput_tok_s"]))
        if row["baseline"] == "1" and "=" not in row["note"].split(";")[0]:
            continue
        key = _point(row).key
        speeds[key][cell].append(float(row["throughput_tok_s"]))
        if row["accept_len"] and float(row["accept_len"]) > 1:
            lengths[key][cell] = float(row["accept_len"])
    means = {k: {c: statistics.fmean(v) for c, v in cells.items()} for k, cells in speeds.items()}
    return {c: statistics.fmean(v) for c, v in base.items()}, means, lengths


def _is_artefact(row: Row) -> bool:
    """A Cell that its source calls a cold start."""
    return "cold-start" in "".join(row["note"]) or (
        "customAR" in row["note"] and row["context_tokens"] == "0" and row["concurrency"] == "1"
    )


def _points(rows: Sequence[Row]) -> dict[str, Point]:
    return {p.key: p for p in map(_point, rows) if not p.is_baseline}


def _point(row: Row) -> Point:
    """The configuration of a row; variants of the communication are in its note."""
    settings = dict(re.findall(r"(customAR|PCIE_AR|DCP)=(\d+)", row["note"]))
    if settings:
        nccl = re.search(r"CHANNELS=(\S+)|NCCL (official|patched)", row["note"])
        knobs: dict[str, KnobValue] = {k.lower(): int(v) for k, v in settings.items()}
        return Point(row["method"], {**knobs, "nccl": nccl[1] or nccl[2] if nccl else "default"})
    if row["method"] == "none":
        return Point("none")
    knobs = {"num_steps": int(row["num_steps"])}
    if row["engine"] == "sglang":
        knobs |= {"topk": int(row["topk"]), "draft_tokens": int(row["num_draft_tokens"])}
    if row["p_min"]:
        knobs["p_min"] = float(row["p_min"])
    return Point(row["method"], knobs)


def _shape(point: Point) -> DraftShape | None:
    if "num_steps" not in point.knobs:
        return None
    steps, topk = int(point.knobs["num_steps"]), int(point.knobs.get("topk", 1))
    if steps == 0:
        return None
    nodes = steps if topk == 1 else int(point.knobs["draft_tokens"]) - 1
    return DraftShape(steps, nodes, 0 if point.method.startswith(LOOKUPS) else steps, topk)


def _measured(ratio: float, length: float | None, point: Point) -> Measured:
    shape = _shape(point)
    if length is None or shape is None:
        return Measured(math.log(ratio))
    accepted = round((length - 1.0) * DRAFTS)
    return Measured(math.log(ratio), SpecCounters(DRAFTS, DRAFTS * shape.draft_tokens, accepted), DRAFTS)


def _starts(rows: Sequence[Row], points: Mapping[str, Point]) -> list[Point]:
    """What the engine's adapter guesses first, by the names of these tables."""
    methods = list(dict.fromkeys(p.method for p in points.values()))
    return list(_renamed(rows[0]["engine"], methods))


def _renamed(engine: str, methods: Sequence[str]) -> Iterable[Point]:
    if engine == "sglang":
        yield from sglang_starts([m for m in methods if m != "none"])
    elif engine == "vllm":
        own = {m: m.lower() for m in methods}
        back = {v: k for k, v in own.items()}
        for point in vllm_starts([*back]):
            if "num_speculative_tokens" in point.knobs:
                yield Point(back[point.method], {"num_steps": point.knobs["num_speculative_tokens"]})
    else:
        known = [m for m in methods if m in LLAMACPP]
        for point in llamacpp_starts({m: LLAMACPP[m].knobs for m in known}):
            depth = point.knobs.get("n_max", point.knobs.get("size_m", 0))
            yield Point(point.method, {"num_steps": depth, "p_min": float(point.knobs.get("p_min", 0.0))})
