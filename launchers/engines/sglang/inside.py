"""Asked inside SGLang's own Python: its flags, and what it makes of command lines.

Run as source text by any interpreter that has SGLang, so it imports nothing of this project. One JSON
object per line on stdin, one per line on stdout; importing SGLang is slow, so one process answers all.

    {"flags": true}   -> {"flags": [{"names": [...], "dest": ..., "kind": ..., ...}, ...]}
    {"argv": [...]}   -> {"resolved": {field: value, ...}} or {"error": "ValueError: ..."}
"""

import argparse
import contextlib
import io
import json
import os
import sys
from importlib import import_module
from typing import Any

Answer = dict[str, Any]

# What SGLang raises when it refuses arguments; its parser exits.
REFUSALS = (
    SystemExit,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def flag_row(action: argparse.Action) -> Answer:
    """What the command line needs to know of one option of the parser."""
    choices = None if action.choices is None else sorted(str(choice) for choice in action.choices)
    return {
        "names": list(action.option_strings),
        "dest": action.dest,
        "kind": kind_of(action),
        "nargs": action.nargs if isinstance(action.nargs, (int, str)) else None,
        "choices": choices,
        "default": action.default,
        "replaced_by": getattr(action, "new_flag", None),
    }


def kind_of(action: argparse.Action) -> str:
    """`switch`: bare; `on_off`: --x and --no-x; `value`: takes one or several."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "on_off"
    return "switch" if action.nargs == 0 else "value"


def flags() -> list[Answer]:
    parser = argparse.ArgumentParser(add_help=False)
    import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return [flag_row(action) for action in parser._actions]


def resolved(argv: list[str]) -> Answer:
    """The effective arguments as the server itself would resolve them, without starting it."""
    server_args = import_module("sglang.srt.server_args").prepare_server_args(argv)
    server_args.resolve_once()
    effective: Answer = server_args.resolved_dict()
    return effective


def load_plugins() -> None:
    """The server loads them first, and they may change what it resolves to."""
    with contextlib.suppress(ModuleNotFoundError):  # versions without plugins
        import_module("sglang.srt.plugins").load_plugins()


def answer(question: Answer) -> Answer:
    """What was asked for, or in one line why there is no answer."""
    told, environment = io.StringIO(), dict(os.environ)
    try:
        with contextlib.redirect_stderr(told):  # where the parser says why it exits
            return {"flags": flags()} if question.get("flags") else {"resolved": resolved(question["argv"])}
    except REFUSALS as error:
        text = told.getvalue() if isinstance(error, SystemExit) else str(error)
        lines = [line for line in text.splitlines() if line.strip()] or [""]
        line = lines[-1] if isinstance(error, SystemExit) else lines[0]
        return {"error": f"{type(error).__name__}: {line}"}
    finally:
        os.environ.clear()  # resolving sets variables that the next question must not find
        os.environ.update(environment)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what SGLang prints is no answer
    load_plugins()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line)), default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
