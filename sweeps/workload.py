"""What is asked of the server: prompts in named classes, their sampling and lengths."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import msgspec

from analysis.accuracy import Match, Reference, last_number
from results.errors import UsageError

CLASSES: tuple[str, ...] = (
    "code_edit",
    "code_writing",
    "extraction",
    "reasoning",
    "summary",
    "chat",
    "translation",
)
Split = Literal["tuning", "validation"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question: OpenAI chat messages, or a plain prompt for the completions endpoint."""

    id: str
    workload_class: str
    messages: tuple[Mapping[str, str], ...] = ()  # [{"role": ..., "content": ...}]; empty = plain
    text: str = ""  # plain prompt, when there are no messages
    max_tokens: int | None = None  # overrides the workload's
    split: Split | None = None  # None: the file does not say; see split_prompts
    reference: Reference | None = None  # what answers it rightly

    @property
    def content(self) -> tuple[str, ...]:
        """Every string the model will read, in order."""
        return (*(m["content"] for m in self.messages), self.text)


def shipped(workload_class: str, split: str, count: int | None) -> list[Prompt]:
    """The first `count` prompts (None = all) of a shipped class and split, always in the same order."""
    if workload_class not in CLASSES:
        raise UsageError(f"no prompts for the class {workload_class!r}; shipped are: {', '.join(CLASSES)}")
    name = f"{workload_class}.jsonl"
    text = (resources.files("sweeps.prompts") / name).read_text(encoding="utf-8")
    chosen = [p for p in _parse(text, name, workload_class) if p.split == split]
    if count is not None and not 1 <= count <= len(chosen):
        raise UsageError(
            f"{count} {split} prompts of the class {workload_class} asked for; there are {len(chosen)}"
        )
    return chosen[:count]


def from_file(path: Path, default_class: str | None = None) -> list[Prompt]:
    """Prompts of a user's file, in file order; the format is told from the content.

    One JSON object a line, or a JSON array of objects, each with one of
    `prompt`: text, sent as it is to the completions endpoint;
    `messages`: OpenAI chat messages, the last one from the user;
    `turns`: MT-bench and Spec-Bench, with `question_id` and `category`; the first turn is asked;
    `conversations`: ShareGPT; the first human turn is asked, entries without one are skipped.
    Optional: `id` (default: file name and line), `class` (default: `category`, else `default_class`,
    else the file's name), `max_tokens`, `split` ("tuning" or "validation"), and `reference`, a text or
    a list of texts of which any is right, with `match` ("exact", "contains" or "number"). The
    references of MT-bench are no such texts: of an entry with `turns` they count only with a `match`.
    Raises UsageError with file and line, or entry of the array.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text: {error.reason}") from error
    if not text.strip():
        raise UsageError(f"{path}: the file is empty")
    prompts = _parse(text, str(path), default_class or path.stem)
    if not prompts:
        raise UsageError(f"{path}: no usable prompt in it: no entry has a human turn with text")
    return prompts


def split_prompts(prompts: Iterable[Prompt], seed: int) -> tuple[list[Prompt], list[Prompt]]:
    """(tuning, validation): the winner is published on prompts that the search has never seen.

    Where the prompts name their split it is kept. Otherwise each class is halved by a hash of the
    seed and the content: the same file and seed give the same halves, whatever the order of the
    lines; of an odd number, tuning gets one more. A prompt that repeats an earlier one is left out,
    as it would be served from the prefix cache, or be validated on what was tuned.
    Raises UsageError if a half of a class would be empty.
    """
    classes: dict[str, list[Prompt]] = {}
    for prompt in _without_repeats(prompts):
        classes.setdefault(prompt.workload_class, []).append(prompt)
    halves = [_halves(name, members, seed) for name, members in classes.items()]
    return [p for tuning, _ in halves for p in tuning], [p for _, validation in halves for p in validation]


def random_token_prompts(count: int, words: int, seed: int) -> list[Prompt]:
    """`count` prompts of `words` pseudo-random words, class "random".

    No text that people send looks like this and a drafter cannot guess it, or guesses the loop that
    the model falls into: the caller must mark whatever is concluded from them.
    """
    random = Random(seed)
    texts = [" ".join(_random_word(random) for _ in range(words)) for _ in range(count)]
    return [
        Prompt(f"random-{seed}-{i}", "random", ({"role": "user", "content": text},))
        for i, text in enumerate(texts, 1)
    ]


def prompt_set_hash(prompts: Iterable[Prompt]) -> str:
    """Identity of what is sent, in its order: 16 hex digits. Ids, classes and splits do not count."""
    sent = [([dict(sorted(m.items())) for m in p.messages], p.text, p.max_tokens) for p in prompts]
    return hashlib.sha256(json.dumps(sent).encode()).hexdigest()[:16]


def estimate_tokens(prompt: Prompt) -> int:
    """A rough upper bound, for use before a server can count; most prompts need 0.6 of it.

    A digit or an ASCII sign is a token, as in many vocabularies: a log has twice the tokens of a
    letter of its size. Letters and spaces: UTF-8 bytes / 2.5. Template: 4 a message.
    """
    text = "".join(prompt.content)
    signs = sum(c.isascii() and not c.isalpha() and not c.isspace() for c in text)
    return signs + math.ceil((len(text.encode()) - signs) / 2.5) + 4 * len(prompt.messages)


def check_context(
    prompts: Iterable[Prompt],
    max_tokens: int,
    context_tokens: int,
    count_tokens: Callable[[Prompt], int],
) -> None:
    """Raises UsageError if a prompt and its answer (its own `max_tokens`, else this) exceed the context."""
    for prompt in prompts:
        size, answer = count_tokens(prompt), prompt.max_tokens or max_tokens
        if size + answer > context_tokens:
            raise UsageError(
                f"prompt {prompt.id}: {size} tokens and an answer of up to {answer} do not fit into the "
                f"context of {context_tokens}: shorten it, lower max_tokens or raise the context length"
            )


def _without_repeats(prompts: Iterable[Prompt]) -> list[Prompt]:
    first: dict[tuple[str, ...], Prompt] = {}
    for prompt in prompts:
        earlier = first.setdefault(prompt.content, prompt)
        if earlier.split != prompt.split:
            raise UsageError(
                f"prompts {earlier.id} and {prompt.id} are the same, but not in the same split: "
                "the validation would not be held out"
            )
    return list(first.values())


def _halves(workload_class: str, prompts: Sequence[Prompt], seed: int) -> tuple[list[Prompt], list[Prompt]]:
    if all(p.split is None for p in prompts):
        ranked = sorted(prompts, key=lambda p: _rank(p, seed))
        chosen = {p.content for p in ranked[: (len(ranked) + 1) // 2]}
    elif any(p.split is None for p in prompts):
        raise UsageError(f"class {workload_class}: either every prompt names its split, or none does")
    else:
        chosen = {p.content for p in prompts if p.split == "tuning"}
    tuning = [p for p in prompts if p.content in chosen]
    validation = [p for p in prompts if p.content not in chosen]
    if not tuning or not validation:
        raise UsageError(
            f"class {workload_class}: {len(tuning)} different prompts to tune on and {len(validation)} held "
            "out to validate on; at least one of each is needed, and dozens for a result to hold"
        )
    return tuning, validation


def _rank(prompt: Prompt, seed: int) -> str:
    return hashlib.sha256(f"{seed} {prompt_set_hash([prompt])}".encode()).hexdigest()


def _random_word(random: Random) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 9)))


_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: _Text


class _Turn(msgspec.Struct, rename={"speaker": "from"}):
    speaker: str
    value: str


class _Entry(msgspec.Struct, rename={"workload_class": "class"}):
    """One object of a prompt file; fields that are not named here are ignored."""

    prompt: _Text | None = None
    messages: list[_Message] | None = None
    turns: list[_Text] | None = None
    conversations: list[_Turn] | None = None
    id: int | _Text | None = None
    question_id: int | _Text | None = None
    workload_class: _Text | None = None
    category: _Text | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    split: Split | None = None
    reference: Any = None  # of any shape where it is not ours
    match: Match | None = None

    def accepted(self) -> Reference | None:
        """What is right; None where nothing says so. Raises ValueError."""
        is_ours = self.match is not None or self.prompt is not None or self.messages is not None
        if not is_ours or (self.reference is None and self.match is None):
            return None
        given = [self.reference] if isinstance(self.reference, str) else self.reference
        if (
            not isinstance(given, list)
            or not given
            or not all(isinstance(t, str) and t.strip() for t in given)
        ):
            raise ValueError("`reference` must be a text, or a list of texts")
        if self.match == "number" and (bad := next((t for t in given if last_number(t) is None), None)):
            raise ValueError(f"`match` is number, and the reference {bad!r} has none")
        return Reference(tuple(given), self.match or "exact")

    def asked(self) -> list[_Message]:
        """The chat messages to send; empty when there is nothing to ask."""
        if self.messages is not None:
            if not self.messages or self.messages[-1].role != "user":
                raise ValueError("`messages` must end with a message of the user")
            return self.messages
        if self.turns is not None:
            if not self.turns:
                raise ValueError("`turns` is empty")
            return [_Message("user", self.turns[0])]
        human = (t.value for t in self.conversations or () if t.speaker in ("human", "user"))
        first = next(human, "")
        return [_Message("user", first)] if first.strip() else []


def _parse(text: str, file: str, default_class: str) -> list[Prompt]:
    """Prompts of a JSONL or JSON text, in order; `file` names it in ids and errors."""
    prompts: dict[str, Prompt] = {}
    places: dict[str, str] = {}
    is_array = text.lstrip().startswith("[")
    for number, value in _array(text, file) if is_array else _lines(text, file):
        place = f"{file}: entry {number}" if is_array else f"{file}:{number}"
        try:
            prompt = _prompt(value, f"{Path(file).stem}-{number}", default_class)
        except ValueError as error:
            raise UsageError(f"{place}: {error}") from error
        if prompt is None:
            continue
        if prompt.id in prompts:
            raise UsageError(f"{place}: the id {prompt.id!r} was used before, at {places[prompt.id]}")
        prompts[prompt.id], places[prompt.id] = prompt, place
    return list(prompts.values())


def _lines(text: str, file: str) -> Iterable[tuple[int, object]]:
    """(line number, value). Not splitlines(): JSON strings may hold U+2028 and its like."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, _json(line, file, number)


def _array(text: str, file: str) -> Iterable[tuple[int, object]]:
    return enumerate(msgspec.convert(_json(text, file, 1), list[object]), 1)


def _json(text: str, file: str, first_line: int) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UsageError(f"{file}:{line}: broken JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep nesting
        raise UsageError(f"{file}:{first_line}: JSON out of bounds: {error}") from error


def _prompt(value: object, default_id: str, default_class: str) -> Prompt | None:
    """The Prompt of one entry, None if it asks nothing. Raises ValueError with what is wrong."""
    entry = msgspec.convert(value, _Entry)
    given = (entry.prompt, entry.messages, entry.turns, entry.conversations)
    if sum(g is not None for g in given) != 1:
        raise ValueError("exactly one of `prompt`, `messages`, `turns`, `conversations` is needed")
    messages = [] if entry.prompt else entry.asked()
    if not entry.prompt and not messages:
        return None
    own_id = entry.id if entry.id is not None else entry.question_id
    prompt = Prompt(
        id=default_id if own_id is None else str(own_id),
        workload_class=entry.workload_class or entry.category or default_class,
        messages=tuple({"role": m.role, "content": m.content} for m in messages),
        text=entry.prompt or "",
        max_tokens=entry.max_tokens,
        split=entry.split,
        reference=entry.accepted(),
    )
    "".join((prompt.id, prompt.workload_class, *prompt.content)).encode()  # half a surrogate pair
    return prompt
