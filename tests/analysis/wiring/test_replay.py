"""The score is the cross-entropy against what the target would say, in excess of the best there is."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from analysis.wiring.replay import Text, guessed, losses
from results.errors import UsageError
from results.hidden_states import HiddenStates
from results.wiring import D2t, Source
from tests.analysis.wiring import other_pair, pair
from tests.rigs.pair.model import Cache, head_logits, head_step


@pytest.fixture(scope="module")
def sequence() -> HiddenStates:
    return pair.ordinary_text(1)[0]


def by_hand(sequence: HiddenStates, steps: int) -> float:
    """The mean over rows and steps, with the pair's own code and whole logits."""
    head, target = pair.weights("head"), pair.weights("target")
    ids = torch.arange(640) + head["d2t"]
    said = (sequence.states[9] @ target["lm_head.weight"].T).log_softmax(-1)
    hidden = torch.cat([sequence.states[b] for b in (2, 4, 5)], -1)[None] @ head["fc.weight"].T
    cache, found, rows = Cache(), [], hidden.shape[1]
    for step in range(steps):
        tokens = sequence.token_ids[(torch.arange(rows) + 1 + step).clamp(max=rows)]
        hidden = head_step(head, target["model.embed_tokens.weight"][tokens][None], hidden, cache)
        drafted = head_logits(head, hidden)[0, : rows - 1 - step].log_softmax(-1)
        wanted = said[1 + step :, ids]
        covered = wanted.logsumexp(-1, keepdim=True)
        shares = (wanted - covered).exp()
        found.append((shares * (wanted - covered - drafted)).sum(-1) - covered[:, 0])
    return float(torch.cat(found).mean())


@pytest.mark.parametrize("steps", [1, 3])
def test_loss_is_what_it_says(sequence: HiddenStates, steps: int) -> None:
    (found,) = losses(Text(pair.pair(), sequence), [pair.RIGHT], steps)
    assert found is not None
    assert found.nats / found.rows == pytest.approx(by_hand(sequence, steps), rel=1e-4)
    rows = len(sequence.token_ids) - 1
    assert found.rows == sum(rows - 1 - step for step in range(steps))
    assert found.judged == rows - 1 and 0.4 < found.agreed / found.judged < 0.9


def test_many_at_once_are_each_alone(sequence: HiddenStates, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, whatever they are grouped by; also in batches and parts smaller than one sequence."""
    readings = [
        replace(pair.RIGHT, boundaries=b) for b in [(2, 4, 5), (3, 5, 6), (0, 2, 4), (5, 4, 2), (2, 5, 4)]
    ]
    readings[2:2] = [replace(pair.RIGHT, d2t=D2t.ABSENT), replace(pair.RIGHT, norm_output=True)]
    alone = [losses(Text(pair.pair(), sequence), [r], 2)[0] for r in readings]
    for batch_rows, logits in ((2048, 1 << 25), (1, 640 * 7)):
        monkeypatch.setattr("analysis.wiring.replay.BATCH_ROWS", batch_rows)
        monkeypatch.setattr("analysis.wiring.replay.LOGITS", logits)
        together = losses(Text(pair.pair(), sequence), readings, 2)
        for one, other in zip(alone, together, strict=True):
            assert one is not None and other is not None
            assert other.nats == pytest.approx(one.nats, rel=1e-4)
    assert len({round(one.nats, 3) for one in alone if one}) == len(readings)


def test_a_text_cut_to_its_beginning_scores_as_the_beginning_does(sequence: HiddenStates) -> None:
    short = HiddenStates(sequence.token_ids[:31], 1, {b: s[:30] for b, s in sequence.states.items()})
    (cut,), (beginning,) = (
        losses(text, [pair.RIGHT]) for text in (Text(pair.pair(), sequence, 30), Text(pair.pair(), short))
    )
    assert cut is not None and beginning is not None
    assert cut.nats == pytest.approx(beginning.nats, rel=1e-4)


def test_the_same_from_the_last_boundary_where_the_normed_one_is_missing(sequence: HiddenStates) -> None:
    states = {b: s for b, s in sequence.states.items() if b != 9}
    (found,) = losses(Text(pair.pair(), replace(sequence, states=states)), [pair.RIGHT])
    (known,) = losses(Text(pair.pair(), sequence), [pair.RIGHT])
    assert found is not None and known is not None and found.nats == pytest.approx(known.nats, rel=1e-4)
    del states[8]
    with pytest.raises(UsageError, match="after the target's last layer"):
        losses(Text(pair.pair(), replace(sequence, states=states)), [pair.RIGHT])


def test_what_cannot_be_read_has_no_loss(sequence: HiddenStates) -> None:
    text = Text(pair.pair(), sequence)
    unreadable = [
        replace(pair.RIGHT, boundaries=(2, 4)),
        replace(pair.RIGHT, uses_fc=False),
        replace(pair.RIGHT, embedding=Source.OWN),
    ]
    assert losses(text, [*unreadable, pair.RIGHT])[:3] == [None] * 3
    with pytest.raises(UsageError, match="too few"):
        losses(Text(pair.pair(), sequence, 3), [pair.RIGHT], 3)


def test_the_map_made_anew_from_t2d_is_that_of_the_offsets() -> None:
    found = [pair.pair().draft_ids(how) for how in (D2t.OFFSETS, D2t.FROM_T2D)]
    assert found[0].equal(found[1])
    assert not pair.pair().draft_ids(D2t.ABSENT).equal(found[0])


def test_a_map_out_of_the_vocabulary_cannot_be_read() -> None:
    absolute = pair.weights("head") | {"d2t": pair.weights("head")["d2t"] + torch.arange(640)}
    with pytest.raises(UsageError, match="does not map"):
        pair.pair(absolute).draft_ids(D2t.OFFSETS)
    assert pair.pair(absolute).draft_ids(D2t.IDS).equal(pair.pair().draft_ids(D2t.OFFSETS))


def test_a_map_that_gives_one_id_many_times_gains_nothing_by_it(sequence: HiddenStates) -> None:
    """Offsets read as ids: mostly zeros and small numbers."""
    repeated = replace(pair.RIGHT, d2t=D2t.IDS)
    right, wrong = losses(Text(pair.pair(), sequence), [pair.RIGHT, repeated])
    assert right is not None and wrong is not None and wrong.nats > 5 * right.nats


@pytest.mark.parametrize("steps", [1, 3])
def test_a_guess_knows_how_often_each_token_comes_and_a_head_knows_more(
    sequence: HiddenStates, steps: int
) -> None:
    text = Text(pair.pair(), sequence)
    (right,), guess = losses(text, [pair.RIGHT], steps), guessed(text, D2t.OFFSETS, steps)
    assert right is not None and (guess.rows, guess.judged) == (right.rows, right.judged)
    assert guess.nats > 2 * right.nats and guess.agreed < right.agreed
    said = (sequence.states[9] @ pair.weights("target")["lm_head.weight"].T).log_softmax(-1)
    wanted = said[:, pair.pair().draft_ids(D2t.OFFSETS)]
    shares, covered = wanted.softmax(-1), wanted.logsumexp(-1)
    each = (shares * (wanted.log_softmax(-1) - shares.mean(0).log())).sum(-1) - covered
    assert guess.nats == pytest.approx(sum(float(each[n:].sum()) for n in range(1, steps + 1)), rel=1e-4)


def test_random_text_surprises_the_target_more_than_ordinary_text(sequence: HiddenStates) -> None:
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(2, 1024, (60,), generator=generator)
    random = Text(pair.pair(), pair.states_of(ids, 1)).surprise()
    assert Text(pair.pair(), sequence).surprise() < 0.6 * random


def test_the_other_pair_is_best_as_it_was_built() -> None:
    made, right = other_pair.pair(), other_pair.RIGHT
    tried = [right, *(replace(right, boundaries=b) for b in ((3, 1), (1, 2), (2, 3), (0, 3), (1, 4)))]
    tried += [replace(right, hidden_lag=1), replace(right, adds_residual=False)]
    found = losses(Text(made, other_pair.text(1)[0]), tried)
    scores = [loss.nats / loss.rows for loss in found if loss is not None]
    assert len(scores) == len(tried) and scores[0] < 0.1 and min(scores[1:]) > 0.3
    assert all(a != b for a, b in pairwise(scores))
    assert losses(Text(made, other_pair.text(1)[0]), [replace(right, embedding=Source.TARGET)]) == [None]
