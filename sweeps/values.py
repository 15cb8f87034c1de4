"""The kinds of values that the sweep file is made of, each with what it may be."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
MOST = 10**9  # of anything counted, and of seconds: beyond it clocks overflow (that is 31 years)


class Section(BaseModel):
    """A mapping whose keys are known. No number in it is NaN or infinite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _no_switch(value: object) -> object:
    """Python counts with true and false; whoever writes `yes` for a number made a mistake."""
    if isinstance(value, bool):
        raise PydanticCustomError("no_number", "a number is expected")
    return value


def _folder_name(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise ValueError(
            f"{name[:60]!r} cannot name a folder: write letters, digits, `.`, `_` and `-`, and begin with a"
            " letter or digit"
        )
    return name


Name = Annotated[str, AfterValidator(_folder_name), WithJsonSchema({"type": "string", "pattern": NAME})]
NO_SWITCH = BeforeValidator(
    _no_switch
)  # the last of the annotations: before it, bounds leave the JSON Schema
Whole = Annotated[int, NO_SWITCH]
Number = Annotated[float, NO_SWITCH]
Count = Annotated[int, Field(ge=1, le=MOST), NO_SWITCH]
CountOrNone = Annotated[int, Field(ge=0, le=MOST), NO_SWITCH]
Amount = Annotated[float, Field(ge=0, le=MOST), NO_SWITCH]
Weight = Amount
Share = Annotated[float, Field(gt=0, lt=1), NO_SWITCH]
Positive = Annotated[float, Field(gt=0), NO_SWITCH]
Seconds = Annotated[float, Field(gt=0, le=MOST), NO_SWITCH]
SecondsOrNone = Annotated[float, Field(ge=0, le=MOST), NO_SWITCH]
Bound = Annotated[
    float,
    Field(gt=0),
    NO_SWITCH,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9]", "examples": ["24 GiB"]},
            ]
        }
    ),
]
