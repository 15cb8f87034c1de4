"""What must never be written anywhere: known by the names of variables and flags, or by their look."""

import re
from collections.abc import Sequence

HIDDEN = "<secret>"
_WORDS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "AUTH", "_KEY")
# Settings about tokens of text: MAX_TOKENS, TOKENIZER_MODE, SPECULATIVE_TOKEN_MAP, TIME_TO_FIRST_TOKEN ...
_NO_SECRETS = re.compile(
    r"(DE)?TOKENIZERS?|TOKENS|(FIRST|INTER|MULTI|PAD|EOS|BOS|STOP)_TOKEN|TOKEN_(MAP|IDS?|THRESHOLD)"
)
_SECRET_VALUES = re.compile(
    r"(?<![\w-])(hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|gh[opsur]_\w{20,}|github_pat_\w{20,}|nvapi-[\w-]{20,}"
    r"|glpat-[\w-]{16,}|xox[abp]-[\w-]{10,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]{10,})"
    r"|Bearer\s+\S|://[^/\s:@]+:[^/\s@]+@"
)


def is_secret(name: str) -> bool:
    """Whether the value of a variable or flag of this name is a secret."""
    plain = _NO_SECRETS.sub("", name.lstrip("-").upper().replace("-", "_"))
    return any(word in plain for word in _WORDS)


def looks_secret(value: str) -> bool:
    """Whether a value has the form of a well-known credential, or a URL carries a password."""
    return _SECRET_VALUES.search(value) is not None


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
