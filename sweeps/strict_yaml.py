"""Text that a person wrote as YAML: read strictly, its mistakes told by line and in plain words."""

from typing import Any

import yaml

from results.errors import UsageError

_TIME = "tag:yaml.org,2002:timestamp"
_TAB = "found character '\\t' that cannot start any token"


class _Loader(yaml.SafeLoader):
    """Safe; a key that stands twice is an error, and what looks like a date is text."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        text: str = super().construct_scalar(node)
        if "\0" in text:
            problem = "a text with a null character, which no file, variable or argument can hold"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                problem = f"the key {key.value!r} stands there twice: keep one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in kinds if tag != _TIME]
    for first, kinds in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str, where: str) -> object:
    """What the text holds; None if nothing. Raises UsageError that begins with `where`."""
    try:
        return yaml.load(text, _Loader)  # a subclass of the safe one
    except yaml.YAMLError as error:
        raise UsageError(f"{where} is not valid YAML: {_problem(error)}") from error
    except RecursionError as error:
        raise UsageError(f"{where} is not valid YAML: it is nested too deeply") from error
    except (ValueError, OverflowError) as error:  # of a number with thousands of digits, or a tagged value
        raise UsageError(f"{where} is not valid YAML: a value in it cannot be read: {error}") from error


def _problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark, problem = error.problem_mark, " ".join((error.problem or "").split())
    if problem == _TAB:
        problem = "a tab cannot indent: use spaces"
    context = f" ({' '.join(error.context.split())})" if error.context else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{context}"
