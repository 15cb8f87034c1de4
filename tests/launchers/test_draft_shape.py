"""Steps, width and passes of a draft in the words of every engine, told alike."""

import pytest

from launchers.engines.llamacpp import knobs as llamacpp
from launchers.engines.sglang import knobs as sglang
from launchers.engines.vllm import knobs as vllm
from results.records import DraftShape, Point


@pytest.mark.parametrize(
    ("point", "shape"),
    [
        (Point("EAGLE3", {"num_steps": 3, "topk": 1, "draft_tokens": 4}), DraftShape(3, 3, 3, 1)),
        (Point("EAGLE3", {"num_steps": 5, "topk": 4, "draft_tokens": 8}), DraftShape(5, 7, 5, 4)),
        (Point("NEXTN", {"num_steps": 2}), DraftShape(2, 2, 2, 1)),
        (Point("NGRAM", {"draft_tokens": 12, "breadth": 10}), DraftShape(11, 11, 0, 10)),
        (Point("NGRAM", {"draft_tokens": 32, "breadth": 1}), DraftShape(18, 31, 0, 1)),
        (Point("EAGLE3", {"num_steps": 3, "topk": 1, "adaptive": True}), None),
    ],
)
def test_sglang(point: Point, shape: DraftShape | None) -> None:
    assert sglang.draft_shape(point) == shape


@pytest.mark.parametrize(
    ("point", "shape"),
    [
        (Point("eagle3", {"num_speculative_tokens": 5}), DraftShape(5, 5, 5)),
        (Point("mtp", {"num_speculative_tokens": 2}), DraftShape(2, 2, 2)),
        (Point("medusa", {"num_speculative_tokens": 4}), DraftShape(4, 4, 1)),
        (Point("ngram", {"num_speculative_tokens": 8}), DraftShape(8, 8, 0)),
        (Point("eagle3", {"num_speculative_tokens": 5, "tokens_per_batch_size": "1-4:5,5-:0"}), None),
    ],
)
def test_vllm(point: Point, shape: DraftShape | None) -> None:
    assert vllm.draft_shape(point) == shape


@pytest.mark.parametrize(
    ("point", "shape"),
    [
        (Point("ngram-simple", {"size_n": 4, "size_m": 8}), DraftShape(8, 8, 0)),
        (Point("ngram-mod", {"n_match": 8, "n_min": 0, "n_max": 16}), DraftShape(16, 16, 0)),
        (Point("draft-simple", {"n_max": 6, "n_min": 0, "p_min": 0.5}), DraftShape(6, 6, 6)),
    ],
)
def test_llamacpp(point: Point, shape: DraftShape | None) -> None:
    assert llamacpp.draft_shape(point) == shape
