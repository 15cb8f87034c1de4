"""What must never be written anywhere: known by the names of variables and flags."""

from collections.abc import Sequence

HIDDEN = "<secret>"
_WORDS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "AUTH", "_KEY")
_NO_SECRETS = ("MAX_TOKENS", "N_TOKENS", "TOKENS", "TOKENIZER")


def is_secret(name: str) -> bool:
    """Whether the value of a variable or flag of this name is a secret."""
    plain = name.lstrip("-").upper().replace("-", "_")
    harmless = any(plain.endswith(word) for word in _NO_SECRETS)
    return not harmless and any(word in plain for word in _WORDS)


def masked(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without the values of its secret flags (`--api-key X` and `--api-key=X`)."""
    shown: list[str] = []
    for i, word in enumerate(argv):
        flag, equals, _ = word.partition("=")
        if i > 0 and argv[i - 1].startswith("-") and is_secret(argv[i - 1]) and "=" not in argv[i - 1]:
            shown.append(HIDDEN)
        elif equals and flag.startswith("-") and is_secret(flag):
            shown.append(f"{flag}={HIDDEN}")
        else:
            shown.append(word)
    return tuple(shown)
