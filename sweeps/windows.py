"""The load of one arm-run: a grid of Cells, each with prompts of its own, lengthened to its context."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from results.errors import UsageError
from results.records import Cell
from sweeps.pace import Pace
from sweeps.workload import Prompt, estimate_tokens

PromptsByClass = Mapping[str, Sequence[Prompt]]

USUAL_SHARE = 0.6  # of estimate_tokens, an upper bound, that most prompts have
BEFORE = "Earlier in this conversation:\n\n"
AFTER = "\n\nThat was earlier. Now:\n\n"
ROUNDS = 2  # of every stream at least: a window in which each sends one request is never steady


@dataclass(frozen=True)
class Window:
    """What is sent to one arm in one go: a Cell, or one turn of it."""

    cell: Cell
    pace: Pace
    prompts: Sequence[Prompt]

    def turns(self) -> "Iterator[Window]":
        """Prompt by prompt where one request is in flight at a time; else the whole Cell."""
        if self.pace.concurrency != 1:
            yield self
            return
        for prompt in self.prompts:
            yield Window(self.cell, self.pace, [prompt])


def prompts_at(pace: Pace, prompts_per_class: int) -> int:
    """Prompts of each class in a window of this pace."""
    alone = pace.concurrency in (None, 1)  # an open loop needs none, one stream is steady from the first on
    return prompts_per_class if alone else max(prompts_per_class, ROUNDS * (pace.concurrency or 1))


@dataclass(frozen=True)
class Grid:
    """What the windows of one phase are made of, at whatever paces."""

    prompts: PromptsByClass
    contexts: Sequence[int]  # prompt lengths in tokens; 0 = as the prompts are
    prompts_per_class: int
    material: PromptsByClass  # what prompts are lengthened with

    def needed(self, paces: Sequence[Pace]) -> int:
        """Prompts of each class that a whole arm-run takes."""
        return len(self.contexts) * sum(prompts_at(pace, self.prompts_per_class) for pace in paces)

    def windows(self, paces: Sequence[Pace]) -> list[Window]:
        """In the order they are measured: pace by pace, context by context, class by class.

        No prompt stands in two windows: a server must not meet one again, since n-gram stores remember.
        Raises UsageError if there are too few, see also `lengthened`.
        """
        self._check_enough(paces)
        found, used = [], 0
        for pace in paces:
            count = prompts_at(pace, self.prompts_per_class)
            for context in self.contexts:
                for workload_class, prompts in self.prompts.items():
                    cell = Cell(workload_class, str(pace), context or None)
                    own = [lengthened(p, context, self.material) for p in prompts[used : used + count]]
                    found.append(Window(cell, pace, own))
                used += count
        return found

    def warm_up(self, paces: Sequence[Pace]) -> list[Prompt]:
        """One of each class and context, its answer thrown away: the shortest that no window has."""
        measured = self.needed(paces)
        return [
            lengthened(min(prompts[measured:] or prompts, key=estimate_tokens), context, self.material)
            for context in self.contexts
            for prompts in self.prompts.values()
        ]

    def _check_enough(self, paces: Sequence[Pace]) -> None:
        count, cells = self.needed(paces), len(paces) * len(self.contexts)
        shares = f", in {cells} Cells that share none" if cells > 1 else ""
        for workload_class, available in self.prompts.items():
            if len(available) < count:
                raise UsageError(
                    f"workload: class {workload_class} has {len(available)} prompts in each half, and an arm"
                    f" is asked {count}{shares}: name `files` with more prompts, or lower prompts_per_class,"
                    " the paces of `load` (closed(n) takes at least 2n) or the lengths of `context`"
                )


def lengthened(prompt: Prompt, context_tokens: int, material: PromptsByClass) -> Prompt:
    """The prompt behind as much other text as makes it about `context_tokens` long; 0 = as it is.

    The text is other prompts, those of its class first, and begins with another one for every prompt, so
    that no two share a prefix that a cache could serve. Raises UsageError if the prompt is longer by
    itself, or if there is too little text.
    """
    if not context_tokens:
        return prompt
    missing = context_tokens - usual_tokens(prompt)
    if missing <= 0:
        raise UsageError(
            f"workload.context: prompt {prompt.id} alone has about {usual_tokens(prompt)} tokens, more than"
            f" {context_tokens}: raise it, or use 0 for prompts as they are"
        )
    text = ""
    for other in _others(prompt, material):
        piece = "\n\n".join(filter(None, other.content)) + "\n\n"
        size = usual_tokens(replace(other, messages=(), text=piece))
        if size >= missing:
            return _behind(prompt, text + piece[: ceil(len(piece) * missing / size)])
        text, missing = text + piece, missing - size
    raise UsageError(
        f"workload.context: there is text for about {context_tokens - missing} tokens before a prompt, not"
        f" for {context_tokens}: lower it, or name `files` with long prompts of your own"
    )


def usual_tokens(prompt: Prompt) -> int:
    """About how long a prompt is, before a server can count."""
    return ceil(USUAL_SHARE * estimate_tokens(prompt))


def _others(prompt: Prompt, material: PromptsByClass) -> Iterator[Prompt]:
    """Those of its class that follow it, then from the first on; then the other classes."""
    own = material.get(prompt.workload_class, ())
    at = next((i for i, p in enumerate(own) if p.id == prompt.id), 0)
    yield from own[at + 1 :]
    yield from own[:at]
    for workload_class, others in material.items():
        if workload_class != prompt.workload_class:
            yield from (*others[at:], *others[:at])


def _behind(prompt: Prompt, text: str) -> Prompt:
    earlier = BEFORE + text + AFTER
    if not prompt.messages:
        return replace(prompt, text=earlier + prompt.text)
    at = next(i for i, m in enumerate(prompt.messages) if m["role"] == "user")
    asked = {**prompt.messages[at], "content": earlier + prompt.messages[at]["content"]}
    return replace(prompt, messages=(*prompt.messages[:at], asked, *prompt.messages[at + 1 :]))
