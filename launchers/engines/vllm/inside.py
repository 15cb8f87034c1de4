"""Run by vLLM's own Python: what this installation of it can do, as JSON, for every line on stdin.

Uses nothing of this project. Reads the parser of `vllm serve` and the fields of SpeculativeConfig, so
that a flag or a key that a release renamed is known before a launch. No server and no model is loaded.
"""

import argparse
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import typing
from typing import Any


def first_of(*paths: str) -> Any:
    """The first `module:name` that can be imported: releases move them. None if none can."""
    for path in paths:
        module, _, name = path.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def plain(value: Any) -> Any:
    """A default as JSON, or its text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def flag(action: argparse.Action) -> dict[str, Any]:
    switch = isinstance(action, argparse.BooleanOptionalAction)
    return {
        "names": list(action.option_strings),
        "dest": action.dest,
        "values": 0 if action.nargs == 0 else "many" if action.nargs in ("+", "*") else 1,
        "negatable": switch,
        "choices": [str(c) for c in action.choices or () if c is not None],
        "default": plain(action.default),
    }


def options(alias: Any) -> list[str]:
    """The strings of a (nested) Literal, in order."""
    found = [o for arg in typing.get_args(alias) for o in ([arg] if isinstance(arg, str) else options(arg))]
    return [*dict.fromkeys(found)]


def spec_keys(config: Any) -> dict[str, Any]:
    return {
        f.name: plain(getattr(f.default, "default", f.default))
        for f in dataclasses.fields(config)
        if f.init and f.default is not dataclasses.MISSING
    }


def device() -> tuple[str, str, int | None]:
    """(kind, name, memory in bytes); memory None if it cannot be told without a server."""
    platform = first_of("vllm.platforms:current_platform")
    kind = str(getattr(platform, "device_type", "") or "")
    try:
        return kind, str(platform.get_device_name()), int(platform.get_device_total_memory())
    except (AttributeError, NotImplementedError, RuntimeError, ValueError, OSError):
        return kind, "", None


def capabilities() -> dict[str, Any]:
    """Everything that the rules and the command line are made from."""
    parser_type = first_of(
        "vllm.utils.argparse_utils:FlexibleArgumentParser", "vllm.utils:FlexibleArgumentParser"
    )
    make_parser = first_of(
        "vllm.entrypoints.launchers.cli_args:make_arg_parser",
        "vllm.entrypoints.openai.cli_args:make_arg_parser",
    )
    config = first_of("vllm.config.speculative:SpeculativeConfig", "vllm.config:SpeculativeConfig")
    where = (
        "vllm.config.speculative" if importlib.util.find_spec("vllm.config.speculative") else "vllm.config"
    )
    kind, name, memory_bytes = device()
    return {
        "version": importlib.import_module("vllm").__version__,
        "distribution": any(
            (d.metadata["Name"] or "").lower() == "vllm" for d in importlib.metadata.distributions()
        ),
        "flags": [flag(a) for a in make_parser(parser_type())._actions if a.option_strings],
        "speculative_keys": spec_keys(config),
        "methods": options(first_of(f"{where}:SpeculativeMethod")),
        "rejection_sample_methods": options(first_of(f"{where}:RejectionSampleMethod")),
        "draft_sample_methods": options(first_of(f"{where}:DraftSampleMethod")),
        "arctic_inference": importlib.util.find_spec("arctic_inference") is not None,
        "device": kind,
        "device_name": name,
        "device_memory_bytes": memory_bytes,
    }


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer
    for _ in sys.stdin:
        print(json.dumps(capabilities()), file=answers, flush=True)


if __name__ == "__main__":
    main()
