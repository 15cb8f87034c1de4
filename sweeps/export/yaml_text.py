"""YAML that every reader takes alike: whatever could be read as another type stands in quotes."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

# Nothing that YAML 1.1 or 1.2 reads as a number, a date, a boolean or null.
PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null|none)$)[A-Za-z/][A-Za-z0-9./_-]+", re.IGNORECASE)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """A value that stands in two places is written twice."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(*documents: Any) -> str:
    """Documents as YAML text."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


def marked(text: str, marks: Iterable[tuple[str, str]]) -> str:
    """A comment at the end of every line that holds a word: (word, comment)."""
    lines = text.rstrip("\n").split("\n")
    for word, comment in marks:
        lines = [f"{line}  # {comment}" if word in line else line for line in lines]
    return "\n".join(lines) + "\n"
