"""The words of a shell text, as far as launch scripts need it: nothing is ever run.

Understood: quotes, escapes, line continuations, comments, `;`, `&&`, `|`, `&`, redirections (dropped),
assignments, `$NAME`, `${NAME}`, `${NAME:-default}`, arrays and `"${NAME[@]}"`. Conditions are not evaluated:
every line is read as if it ran. More lenient than a shell in one thing: a line that starts with a dash
belongs to the command before it, since pasted commands often lost their backslashes.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from results.errors import UsageError

BRANCHES = ("if", "elif", "else", "case", "for", "while", "until")
BETWEEN = ("space", "end", "continuation", "comment", "redirection")  # pieces that end a word
UNRESOLVED = "\0"  # stands before a `$...` whose value the text does not tell

_PIECE = re.compile(
    r"""
      (?P<continuation> \\[ \t]*\r?\n )
    | \\(?P<escaped> . )
    | (?P<array> (?<![^\s;&|]) \w+ \+?= \(
        (?> ' [^']* ' | " (?: \\. | [^"\\] )* " | \\. | (?<!\S) \# [^\n]* | [^()'"\\] )*+ \) )
    | "?\$\{(?P<list> \w+ )\[[@*]\]\}"?
    | '(?P<single> [^']* )'
    | "(?P<double> (?: \\. | [^"\\] )* )"
    | (?P<comment> (?<![^\s;&|]) \# [^\n]* )
    | (?P<variable> \$\{ [^}]* \} | \$ \w+ | \$\( [^)]* \) | ` [^`]* ` | \$[@*?#] )
    | (?P<placeholder> <[\w./ -]+> )
    | (?P<redirection> (?<!\S) \d* (?: >>? | < ) &? [ \t]* [^\s;&|]* | &> [ \t]* [^\s;&|]* )
    | (?P<end> \n | ; | && | \|\|? | & )
    | (?P<space> [ \t\r]+ )
    | (?P<plain> [^\s\\'"\#$`;&|<>{]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_QUOTES = re.compile(
    r"\\(?P<escaped>[\"\\$`\n])|(?P<variable>\$\{[^}]*\}|\$\w+|\$\([^)]*\)|`[^`]*`|\$[@*?#])"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Script:
    """A text of simple commands, each as its words, and every variable that it sets."""

    commands: Sequence[Sequence[str]]
    variables: Mapping[str, str]
    branches: bool  # some lines may not run: if, case, for


def assignment(word: str) -> tuple[str, str] | None:
    """(name, value) of `NAME=value`."""
    found = _ASSIGNMENT.fullmatch(word)
    return (found[1], found[2]) if found else None


def read_script(text: str, variables: Mapping[str, str]) -> Script:
    """The simple commands of a text; `variables` are known from outside.

    A lone `NAME=value` sets a variable for what follows and is no command.
    A text of words that end in NUL, as /proc/PID/cmdline has it, is one command as it stands.
    Raises UsageError for an open quote.
    """
    if "\0" in text:
        return Script([text.rstrip("\0").split("\0")], {}, False)
    found: list[list[str]] = []
    known, own, branches = dict(variables), dict[str, str](), False
    for words in _split(_without_fences(text), known, {}):
        branches = branches or words[0] in BRANCHES
        if len(words) == 1 and (more := re.fullmatch(r"(\w+)\+=(.*)", words[0], re.DOTALL)):
            known[more[1]] = own[more[1]] = known.get(more[1], "") + more[2]
            continue
        assigned = dict(filter(None, map(assignment, words)))
        if len(assigned) == len(words) or words[0] == "export":
            known.update(assigned)
            own.update(assigned)
        if len(assigned) == len(words):
            continue
        if words[0].startswith("-") and found:
            found[-1] += words
        else:
            found.append(words)
    return Script(found, own, branches)


def _without_fences(text: str) -> str:
    """Without what a copy from a page brings along: Markdown fences and a prompt before the command."""
    lines = (line for line in text.split("\n") if not line.lstrip().startswith("```"))
    return "\n".join(re.sub(r"^\s*[$%]\s+", "", line) for line in lines)


def _split(text: str, known: Mapping[str, str], arrays: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yield the words of each simple command; `known` may grow between two of them, `arrays` does here."""
    words: list[str] = []
    word: str | None = None  # None: between two words
    for kind, content, at in _pieces(text):
        if kind in BETWEEN:
            words += [] if word is None else [word]
            word = None
            if kind == "end" and words:
                yield words
                words = []
        elif kind == "array":
            _set_array(content, known, arrays)
        elif kind in ("variable", "list"):
            several = _unquoted(content, known) if kind == "variable" else _items(content, arrays)
            *ended, last = [(word or "") + several[0], *several[1:]]
            words += ended
            word = last or None
        else:
            word = (word or "") + _literal(kind, content, at, known, at_start=word is None)
    words += [] if word is None else [word]
    if words:
        yield words


def _pieces(text: str) -> Iterator[tuple[str, str, int]]:
    """(kind, content, place) of every piece of a text."""
    at = 0
    while at < len(text):
        start_of_value = text[at] == "{" and text[at - 1 : at] in ("", " ", "\t", "\n", "=")
        if start_of_value and (end := _json_end(text, at)):
            yield "single", text[at:end], at
            at = end
            continue
        piece = _PIECE.match(text, at)
        assert piece is not None  # the last alternative takes any character
        assert piece.lastgroup is not None
        yield piece.lastgroup, piece[piece.lastgroup], at
        at = piece.end()


def _set_array(text: str, known: Mapping[str, str], arrays: dict[str, list[str]]) -> None:
    """`NAME=(...)` and `NAME+=(...)`."""
    name, _, inside = text[:-1].partition("=(")
    before = arrays.get(name[:-1], []) if name.endswith("+") else []
    arrays[name.removesuffix("+")] = before + [
        item for line in _split(inside, known, arrays) for item in line
    ]


def _json_end(text: str, at: int) -> int | None:
    """End of a JSON object without quotes around it, as `ps` prints one; None if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


def _literal(kind: str, content: str, at: int, known: Mapping[str, str], *, at_start: bool) -> str:
    if kind == "double":
        return _IN_QUOTES.sub(lambda found: _in_quotes(found, known), content)
    if kind == "plain" and content in ("'", '"'):
        raise UsageError(f"a quote is never closed: the {content} at character {at + 1} of the text")
    if kind == "plain" and at_start and (content == "~" or content.startswith("~/")):
        return known.get("HOME", "~") + content[1:]
    return content


def _in_quotes(found: re.Match[str], known: Mapping[str, str]) -> str:
    if found["escaped"] is not None:
        return "" if found["escaped"] == "\n" else found["escaped"]
    return _value(found["variable"], known)


def _unquoted(reference: str, known: Mapping[str, str]) -> list[str]:
    """An unquoted variable may stand for several words, or for none."""
    value = _value(reference, known)
    return [value] if UNRESOLVED in value else value.split() or [""]


def _items(name: str, arrays: Mapping[str, list[str]]) -> list[str]:
    return arrays.get(name, [f"{UNRESOLVED}${{{name}[@]}}"]) or [""]


def _value(reference: str, known: Mapping[str, str]) -> str:
    found = re.fullmatch(r"\$(?:\{(\w+)(?::?[-=]([^}]*))?\}|(\w+))", reference)
    if found is None:
        return UNRESOLVED + reference
    name, default = found[1] or found[3], found[2]
    if name in known:
        return known[name]
    if default is None:
        return UNRESOLVED + reference
    return _IN_QUOTES.sub(lambda inner: _in_quotes(inner, known), default.strip("\"'"))
