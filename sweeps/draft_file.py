"""A Draft as a commented sweep file."""

import re
from collections.abc import Iterator, Mapping, Sequence

import yaml

from launchers.engines.command_line import Searched
from sweeps.container_draft import ContainerDraft
from sweeps.from_command import Draft

NAMES = {"sglang": "SGLang", "vllm": "vLLM", "llamacpp": "llama-server"}
INTERPRETERS = {
    "sglang": "a Python that has SGLang; one of a venv by its path: /path/to/venv/bin/python",
    "vllm": "a Python that has vLLM; one of a venv by its path: /path/to/venv/bin/python",
    "llamacpp": "your llama-server",
}
COMMENT_COLUMN = 29
WIDTH = 108
REST = """\
# What is asked of the server. Tune on what you serve: `files: [my-prompts.jsonl]` takes your own.
workload:
  classes: [code_edit, chat] # also: code_writing, extraction, summary, reasoning, translation
  prompts_per_class: 4       # in every measurement; other prompts of the class confirm the winner
  max_tokens: 256
  temperature: 0             # set it as your service does: acceptance depends on it
load:
  - closed: 1                # requests in flight: as many as you serve; also  - poisson: 2.5  - replay: FILE

# What counts, and when to stop.
objective: tokens_per_s
# limits: {ttft_p95_s: 0.5}  # a winner must keep them
# goodput: {ttft_s: 0.5}     # of each request; objective: goodput_per_s  counts those that keep it
budget:
  trials: 14                 # points to measure; the confirmation of the best three comes on top
  # hours: 2
seed: 1
"""


def sweep_file(draft: Draft, name: str) -> str:
    """The text of the sweep file of this name; `parse_sweep` reads it."""
    return "\n".join([*_head(draft, _plain(name)), "", *_served(draft), "", *_space(draft.space), "", REST])


def _head(draft: Draft, name: str) -> Iterator[str]:
    yield f"# A sweep file for tuner, made from a command that starts {NAMES[draft.engine]}."
    yield f"# Try it without starting anything:   tuner sweep {name} --dry-run"
    yield f"# Run it (Ctrl-C is safe, the same command goes on):   tuner sweep {name}"
    if draft.notes:
        yield "#"
        yield "# From your command:"
    for note in draft.notes:
        yield from _wrapped(note)


def _served(draft: Draft) -> Iterator[str]:
    yield _line(f"name: {_scalar(draft.name)}", f"records go to runs/{draft.name}")
    yield ""
    yield "# What is served. Both arms get exactly this; only speculation differs."
    yield f"engine: {draft.engine}"
    yield _line(f"server: {_scalar(draft.server)}", INTERPRETERS[draft.engine])
    yield f"model: {_scalar(draft.model)}"
    yield (
        f"draft: {_scalar(draft.draft)}"
        if draft.draft
        else _line("# draft:", "a draft model opens more methods")
    )
    yield from _mapping("args", draft.args, "fixed arguments, by the server's own flag names")
    yield from _mapping("env", draft.env, "fixed environment variables")
    if draft.container is not None:
        yield from _section(draft.container)


def _section(container: ContainerDraft) -> Iterator[str]:
    yield ""
    yield _line("launcher: docker", "each server in a container of its own")
    yield "container:"
    for name, value in container.keys.items():
        yield f"  {name}: {_flow(value)}"
    for line in container.left_out:
        yield f"  # left out: {_plain(line)}"


def _flow(value: object) -> str:
    """A list or mapping on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    return _quoted(value) if isinstance(value, str) and re.search(r"[,\[\]{}:]", value) else _scalar(value)


def _mapping(key: str, values: Mapping[str, object], meaning: str) -> Iterator[str]:
    if not values:
        return
    yield _line(f"{key}:", meaning)
    for name, value in values.items():
        yield f"  {_scalar(name)}: {_scalar(value)}"


def _space(space: Sequence[Searched]) -> Iterator[str]:
    yield "# What to try: methods and the values of their knobs. A method without knobs uses its own grid."
    yield "space:" if any(not searched.offered for searched in space) else "# space:"
    for searched in sorted(space, key=lambda s: s.offered):
        mark = "# " if searched.offered else ""
        yield "  " + mark + _line(f"{searched.method}:", searched.comment, COMMENT_COLUMN - 2 - len(mark))
        for knob, values in searched.knobs.items():
            yield f"  {mark}  {knob}: [{', '.join(map(_scalar, values))}]"


def _line(content: str, comment: str, column: int = COMMENT_COLUMN) -> str:
    return f"{content.ljust(column - 1)} # {_plain(comment)}" if comment else content


def _wrapped(note: str) -> Iterator[str]:
    import textwrap

    lines = textwrap.wrap(_plain(note), WIDTH, break_long_words=False, break_on_hyphens=False)
    for at, line in enumerate(lines):
        yield f"# {'-' if at == 0 else ' '} {line}"


def _plain(text: str) -> str:
    """Text that cannot leave its comment."""
    return "".join(c if c.isprintable() else " " for c in text)


def _scalar(value: object) -> str:
    """One line of YAML that reads back as the same value of the same type."""
    written = yaml.safe_dump(value, allow_unicode=True, width=float("inf")).removesuffix("...\n").strip("\n")
    return _quoted(value) if "#" in written or not written.isprintable() else written


def _quoted(value: object) -> str:
    return yaml.safe_dump(value, default_style='"', width=float("inf")).strip()
