"""What is asked of the server: prompts in named classes, their sampling and lengths."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question: OpenAI chat messages, or a plain prompt for the completions endpoint."""

    id: str
    workload_class: str
    messages: tuple[Mapping[str, str], ...] = ()  # [{"role": ..., "content": ...}]; empty = plain
    text: str = ""  # plain prompt, when there are no messages
    max_tokens: int | None = None  # overrides the workload's
