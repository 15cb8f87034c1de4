"""The table of variables: what was given, what arrived, and what NCCL made of it."""

from dataclasses import replace

from analysis import findings
from analysis.variables import variables
from results.records import BASELINE, Variables
from tests.analysis import samples


def test_what_nccl_replaced_is_told() -> None:
    report = samples.better()
    point = findings.subject(report)
    own = {"NCCL_NTHREADS": "64"}
    found = Variables(own, seen=own, overridden={"NCCL_NTHREADS": "256"})
    blocks = [
        replace(b, arms=tuple(a if a.point == BASELINE else replace(a, variables=found) for a in b.arms))
        for b in report.blocks
    ]
    assert point is not None
    (row,) = variables(replace(report, blocks=blocks)).rows
    assert [entry.text for entry in row] == ["NCCL_NTHREADS", "", "64: arrived, replaced by NCCL: 256"]
