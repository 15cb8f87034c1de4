"""The identity of a Point, and records that were written before it could have a name."""

import msgspec

from results.records import BASELINE, Block, Phase, Point
from tests.records import baseline_arm, block


def test_a_name_tells_equal_points_apart() -> None:
    plain, a, b = (Point("eagle3", {"k": 3}, name) for name in ("", "A", "B"))
    assert len({plain.key, a.key, b.key}) == 3
    assert [p.label for p in (plain, a)] == ["eagle3 k=3", "A: eagle3 k=3"]
    assert plain.key == '["eagle3", {"k": 3}]'  # as it always was
    one = block(0, Phase.CONFIRM, [baseline_arm()])
    assert one.arm(BASELINE) is not None
    assert one.arm(Point("none", name="A")) is None


def test_records_without_names_still_load() -> None:
    told = msgspec.json.encode(block(0, Phase.CONFIRM, [baseline_arm()]))
    old = told.replace(b',"name":""', b"")
    assert b'"name"' not in old
    assert msgspec.json.decode(old, type=Block).compared_with == BASELINE
