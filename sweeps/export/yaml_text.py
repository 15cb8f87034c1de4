"""YAML that every reader takes alike: whatever could be read as another type stands in quotes."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

# Nothing that YAML 1.1 or 1.2 reads as a number, a date, a boolean or null; those words are quoted anyway.
PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9./_-]{3,}")


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _key(dumper: yaml.SafeDumper, content: dict[str, Any]) -> yaml.MappingNode:
    """Keys as they are: names that need no quotes."""
    node = dumper.represent_mapping("tag:yaml.org,2002:map", content.items())
    for key, _ in node.value:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]+", key.value):
            key.style = None
    return node


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _key)


def dump(*documents: Any) -> str:
    """Documents as YAML text, lists of words on one line each."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31, explicit_start=False
    )


def marked(text: str, marks: Iterable[tuple[str, str]]) -> str:
    """A comment at the end of every line that holds a word: (word, comment)."""
    lines = text.rstrip("\n").split("\n")
    for word, comment in marks:
        lines = [f"{line}  # {comment}" if word in line else line for line in lines]
    return "\n".join(lines) + "\n"
