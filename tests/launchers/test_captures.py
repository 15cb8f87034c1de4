"""Passes that a probe wrote, made by hand, put together to sequences."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from launchers.engines.captures import notes, sequences
from results.errors import MeasurementInvalid


class Passes:
    """Files as a probe writes them. A state of position p is [p, pass]."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def add(
        self,
        ids: Sequence[int],
        start: int,
        next_id: int,
        request: str = "a",
        *,
        drafts: int = 0,
        rank: int = 0,
        max_tokens: int | None = 4,
        boundaries: Sequence[int] = (2,),
    ) -> None:
        self.count += 1
        positions = torch.arange(start, start + len(ids))
        state = torch.stack([positions.float(), torch.full((len(ids),), float(self.count))], dim=-1)
        tensors = {f"b{b}": state * b for b in boundaries}
        tensors |= {"input_ids": torch.tensor(ids), "positions": positions, "served_aux": state + rank}
        told = {
            "request": request,
            "prompt_tokens": "3",
            "max_tokens": "" if max_tokens is None else str(max_tokens),
            "drafts": str(drafts),
            "next_id": str(next_id),
        }
        save_file(tensors, self.folder / f"{self.count:020d}.0.dp0.tp{rank}.safetensors", told)


@pytest.fixture
def passes(tmp_path: Path) -> Passes:
    return Passes(tmp_path)


def test_a_prompt_and_rounds_become_one_sequence(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8)
    passes.add([8], 3, 9, drafts=2)  # none accepted
    passes.add([9, 10], 4, 11, drafts=2)  # one
    [found] = sequences(passes.folder)
    assert found.token_ids.tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert found.prompt_tokens == 3
    assert found.accepted == (0, 1)
    assert found.states[2].tolist() == [[0, 2], [2, 2], [4, 2], [6, 4], [8, 6], [10, 6]]
    assert found.served_aux is not None
    assert len(found.served_aux) == 6
    assert (found.served_fc, found.served_ids) == (None, None)


def test_it_ends_where_the_answer_ends(passes: Passes) -> None:
    """The last round may verify more, and another may have been under way: its tokens were for nobody."""
    passes.add([5, 6, 7], 0, 8, max_tokens=2)
    passes.add([8, 9, 10], 3, 11, drafts=2, max_tokens=2)
    passes.add([11], 6, 12, drafts=2, max_tokens=2)
    [found] = sequences(passes.folder)
    assert found.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert len(found.states[2]) == 4
    assert found.accepted == (2,)


def test_without_a_known_end_all_is_kept(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8, max_tokens=None)
    passes.add([8, 9, 10], 3, 11, drafts=2, max_tokens=None)
    [found] = sequences(passes.folder)
    assert found.token_ids.tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert found.accepted == (2,)


def test_of_a_position_computed_again_the_last_counts(passes: Passes) -> None:
    """A request that lost its place is computed anew; the end of a chunk may name a wrong next token."""
    passes.add([5, 6], 0, 99)
    passes.add([7], 2, 8)
    passes.add([5, 6, 7, 8], 0, 9)
    [found] = sequences(passes.folder)
    assert found.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert found.states[2][:, 1].tolist() == [6, 6, 6, 6]
    assert found.accepted == ()


def test_a_second_computation_cut_short_ends_nothing(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8)
    passes.add([8], 3, 9, drafts=2)
    passes.add([5, 6], 0, 99)
    [found] = sequences(passes.folder)
    assert found.token_ids.tolist() == [5, 6, 7, 8, 9]


def test_requests_side_by_side_come_in_the_order_of_their_first_pass(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8, "b")
    passes.add([1, 2, 3], 0, 4, "a")
    passes.add([8], 3, 9, "b", drafts=1)
    assert [s.token_ids.tolist() for s in sequences(passes.folder)] == [[5, 6, 7, 8, 9], [1, 2, 3, 4]]


def test_each_rank_is_read_by_itself(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8)
    passes.add([5, 6, 7], 0, 8, rank=1, boundaries=())
    [first], [second] = sequences(passes.folder), sequences(passes.folder, rank=1)
    assert first.served_aux is not None
    assert second.served_aux is not None
    assert (second.served_aux[:, 0] - first.served_aux[:, 0]).tolist() == [1, 1, 1]
    assert second.states == {}


def test_a_prompt_from_a_cache_has_no_rows(passes: Passes) -> None:
    passes.add([6, 7], 1, 8)
    with pytest.raises(MeasurementInvalid, match="a has no row at position 0: was its prompt in a cache"):
        list(sequences(passes.folder))


def test_passes_must_hold_the_same(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8)
    passes.add([8], 3, 9, boundaries=(2, 3))
    with pytest.raises(MeasurementInvalid, match="different tensors"):
        list(sequences(passes.folder))


def test_a_damaged_file_is_named(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8)
    [path] = passes.folder.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(MeasurementInvalid, match=f"{path.name} is damaged"):
        list(sequences(passes.folder))


def test_nothing_written_says_how_far_it_came(passes: Passes) -> None:
    with pytest.raises(MeasurementInvalid, match="no probe ran in the server"):
        sequences(passes.folder)
    (passes.folder / "attached.dp0.tp0.txt").write_text("drafter: A\nlayers: (2, 4)")
    (passes.folder / "attached.dp0.tp1.txt").write_text("drafter: A\nlayers: (2, 4)")
    assert notes(passes.folder) == ("drafter: A", "layers: (2, 4)")
    with pytest.raises(MeasurementInvalid, match="a drafter that did not run"):
        sequences(passes.folder)


def test_a_probe_that_gave_up_is_quoted_whatever_it_wrote_before(passes: Passes) -> None:
    passes.add([5, 6, 7], 0, 8)
    (passes.folder / "unseen.dp0.tp0.txt").write_text("no layers where they should be")
    with pytest.raises(MeasurementInvalid, match="no layers where they should be"):
        sequences(passes.folder)
