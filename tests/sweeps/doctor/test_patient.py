"""What is read of a command line."""

import pytest

from results.records import KnobValue
from sweeps.doctor.patient import flags_of


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["serve", "model", "--port", "1"], {"port": "1"}),
        (
            ["--seed=7", "-md", "draft.gguf", "--flash-attn"],
            {"seed": "7", "md": "draft.gguf", "flash-attn": True},
        ),
        (["--temp", "-1", "--mlock", "--verbose"], {"temp": "-1", "mlock": True, "verbose": True}),
        (["--kv", "{not json"], {"kv": "{not json"}),
        (
            ["--cc", '{"pass_config": {"enable_sp": true}, "level": 3, "none": null}'],
            {
                "cc": '{"pass_config": {"enable_sp": true}, "level": 3, "none": null}',
                "cc.pass_config.enable_sp": True,
                "cc.level": 3,
            },
        ),
    ],
)
def test_flags_by_name(words: list[str], flags: dict[str, KnobValue]) -> None:
    assert flags_of(words) == flags
