"""`python -m launchers.embedded`: llama.cpp's own HTTP server inside Python, with llama-server's flags.

Loopback only. Serves until SIGTERM, which exits 0. Anything that goes wrong ends with one line on
stderr that says what (exit 1; 2 if the flags are wrong).
"""

import argparse
import os
import signal
import sys
from typing import Any, NoReturn

from launchers.embedded.flags import FLAGS, Flag, Kind
from launchers.port import LOOPBACK

PACKAGE = "xllamacpp==2026.10.11549"


def main() -> None:
    given = _parser().parse_args()
    host = given.__dict__.get("hostnames", LOOPBACK)
    if host != LOOPBACK:
        _end(f"embedded server: error: invalid value {host} for --host: it serves {LOOPBACK} only", 2)
    params = _params(given)
    try:
        server = _xllamacpp().Server(params)
    except RuntimeError as error:
        _end(f"embedded server: {error} The engine's lines above say why.", 1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(f"embedded server: {server.listening_address}", file=sys.stderr, flush=True)  # noqa: T201
    while True:
        signal.pause()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("launchers.embedded", allow_abbrev=False)
    for flag in FLAGS:
        if flag.takes_value:
            convert = {Kind.INT: int, Kind.FLOAT: float}.get(flag.kind, str)
            parser.add_argument(*flag.names, dest=flag.path, type=convert, default=argparse.SUPPRESS)
        else:
            parser.add_argument(*flag.names, dest=flag.path, action="store_true", default=argparse.SUPPRESS)
    return parser


def _params(given: argparse.Namespace) -> Any:
    params = _xllamacpp().CommonParams()
    for flag in FLAGS:
        if flag.path in given:
            _set(params, flag, _value(flag, getattr(given, flag.path)))
    _fill_threads(params)
    return params


def _fill_threads(params: Any) -> None:
    """As llama-server does: batch and draft threads are the generation threads unless given."""
    threads = params.cpuparams.n_threads
    draft = params.speculative.draft
    for pool in (params.cpuparams_batch, draft.cpuparams, draft.cpuparams_batch):
        if pool.n_threads < 1:
            pool.n_threads = threads


def _value(flag: Flag, text: Any) -> Any:
    match flag.kind:
        case Kind.SWITCH_OFF:
            return False
        case Kind.TEXT_LIST:
            return [text]
        case Kind.TEXT_SET:
            return {text}
        case Kind.SPEC_TYPES:
            return [_member("common_speculative_type", "COMMON_SPECULATIVE_TYPE", t) for t in text.split(",")]
        case Kind.FLASH_ATTENTION:
            name = {"on": "enabled", "off": "disabled"}.get(text, text)
            return _member("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE", name)
        case Kind.TENSOR_TYPE:
            return _member("ggml_type", "GGML_TYPE", text)
    return text


def _member(enum: str, prefix: str, text: str) -> Any:
    members = getattr(_xllamacpp(), enum)
    name = f"{prefix}_{text.upper().replace('-', '_')}"
    if name not in members.__members__:
        _end(f"embedded server: error: invalid value {text!r} ({enum} has no {name})", 2)
    return members[name]


def _set(params: Any, flag: Flag, value: Any) -> None:
    *path, last = flag.path.split(".")
    holder = params
    for name in path:
        holder = _attribute(holder, name)
    _attribute(holder, last)
    try:
        setattr(holder, last, value)
    except (OverflowError, TypeError, ValueError) as error:
        _end(f"embedded server: error: invalid value {value!r} for {flag.names[-1]}: {error}", 2)


def _attribute(holder: Any, name: str) -> Any:
    if not hasattr(holder, name):
        version = _xllamacpp().__version__
        _end(
            f"embedded server: xllamacpp {version} has no attribute {type(holder).__name__}.{name}: "
            f"this tuner needs {PACKAGE}",
            2,
        )
    return getattr(holder, name)


def _xllamacpp() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        _end(f"embedded server: cannot import xllamacpp ({error}): pip install {PACKAGE}", 2)
    return xllamacpp


def _end(line: str, code: int) -> NoReturn:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
    os._exit(code)  # the engine's threads may still run and must not print after this line


if __name__ == "__main__":
    main()
