"""Nights for tests: complete, with only what a test names changed."""

from collections.abc import Mapping

from hypothesis import strategies as st

from results.nights import BASELINE, LENGTH, SPEED_UP, Night, NightKind, NightVerdict, series_of
from results.reasons import Reason
from results.records import Failure

FIRST_AT = 1_793_000_000.25  # Unix time
NIGHT_S = 86_400.0
CELLS = [
    f"{name} @ {pace}"
    for name in ("code_edit", "code_writing", "chat", "summary", "extraction", "translation")
    for pace in ("closed(1)", "closed(8)")
]


def night(number: int = 0, **changes: object) -> Night:
    """The `number`-th of a machine; its id is made of pin, machine and number."""
    began_at = FIRST_AT + number * NIGHT_S
    told: dict[str, object] = {
        "pin": "qwen-chat",
        "kind": NightKind.CHECK,
        "machine": "gpu-01",
        "began_at": began_at,
        "ended_at": began_at + 1800.5,
        "segment": {"gpu": "NVIDIA H200", "driver": "570.86.15"},
        "versions": {"engine": "sglang 0.5.6"},
        "effective": {"winner speculative_num_steps": "3"},
        "blocks": 4,
        "values": {SPEED_UP: 1.31, BASELINE: 812.4},
        **changes,
    }
    told.setdefault("id", f"{told['pin']} {told['machine']} {number}")
    return Night(**told)  # type: ignore[arg-type]


def typical(number: int = 0) -> Night:
    """Of 40 series, as a night of a dozen Cells writes it down, with figures of full precision."""
    names = [*(series_of(kind, cell) for kind in (SPEED_UP, BASELINE, LENGTH) for cell in ("", *CELLS))]
    values = {
        name: 1.2345678901234567 + number + at / 7 for at, name in enumerate([*names, "identical_share"])
    }
    names_of_settings = (
        "attention_backend",
        "chunked_prefill_size",
        "max_running_requests",
        "mem_fraction_static",
    )
    return night(
        number,
        segment=dict.fromkeys(
            ("gpu", "driver", "prompts", "model", "drafter"), "sha256:" + "0123456789abcdef" * 2
        ),
        versions=dict.fromkeys(("engine", "image", "kernel", "torch", "nccl"), "0.5.6.post1+cu128"),
        effective={
            f"{arm} {name}": "flashinfer" for arm in ("baseline", "winner") for name in names_of_settings
        },
        values=values,
        said=("PASS: 40 series lie within what the last 30 nights predict.",),
    )


_figures = st.floats(allow_nan=False, allow_infinity=False)
_names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
_mappings = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3)
_values: st.SearchStrategy[Mapping[str, float]] = st.dictionaries(st.text(max_size=12), _figures, max_size=4)
_texts = st.lists(st.text(max_size=20), max_size=3).map(tuple)


def any_night() -> st.SearchStrategy[Night]:
    """Whatever a night may hold; names without NUL, which no database takes."""
    return st.builds(
        Night,
        id=_names,
        pin=_names,
        kind=st.sampled_from(NightKind),
        machine=_names,
        began_at=_figures,
        ended_at=_figures,
        segment=_mappings,
        versions=_mappings,
        effective=_mappings,
        blocks=st.integers(0, 20),
        values=_values,
        again=_values,
        breached=_texts,
        alarms=_texts,
        verdict=st.sampled_from(NightVerdict),
        failure=st.none() | st.builds(Failure, st.sampled_from(Reason), st.text(max_size=20)),
        said=_texts,
    )
