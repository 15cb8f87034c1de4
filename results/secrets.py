"""What must never be written anywhere: known by the names of variables and flags, or by their look."""

import re
from collections.abc import Sequence

HIDDEN = "<secret>"
_WORDS = ("TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "APIKEY", "AUTH", "COOKIE", "_KEY")
# Settings about tokens of text: MAX_TOKENS, TOKENIZER_MODE, SPECULATIVE_TOKEN_MAP, TIME_TO_FIRST_TOKEN ...
_NO_SECRETS = re.compile(
    r"(DE)?TOKENIZERS?|TIKTOKEN|TOKENS|(FIRST|INTER|MULTI|PER|PAD|EOS|BOS|STOP)_TOKEN"
    r"|TOKEN_(MAP|IDS?|THRESHOLD|USAGE|DISTRIBUTION)|NUM_KEY_VALUE|ALLOW_CREDENTIALS"
)
_SECRET_VALUES = re.compile(
    r"(?<![\w-])(hf_[A-Za-z0-9]{20,}|(?<!/)sk-[\w-]{20,}|gh[opsur]_\w{20,}|github_pat_\w{20,}"
    r"|nvapi-[\w-]{20,}|glpat-[\w-]{16,}|xox[abp]-[\w-]{10,}|gsk_\w{20,}|A[KS]IA[A-Z0-9]{16}"
    r"|AIza[\w-]{35}|eyJ[\w-]{10,}\.[\w-]{10,})"
    r"|\b[Bb]earer\s+\S|[Aa]uthorization:\s*\S|://[^/\s:@]*:[^/\s@]+@|PRIVATE KEY-----"
)

_SETTING = re.compile(r"""([A-Za-z][\w-]*)["']?\s*[=:]\s*""")
_VALUE = re.compile(r"""(?!(None|null)\b)("[^"]*"|'[^']*'|[^\s,;)}\]]+)""")


def is_secret(name: str) -> bool:
    """Whether the value of a variable or flag of this name is a secret."""
    plain = _NO_SECRETS.sub("", name.lstrip("-").upper().replace("-", "_"))
    return any(word in plain for word in _WORDS)


def looks_secret(value: str) -> bool:
    """Whether a value has the form of a well-known credential, or a URL carries a password."""
    return _SECRET_VALUES.search(value) is not None


def hides(name: str, value: str) -> bool:
    """Whether the value of this variable or flag must not be shown: by its name, or by its look."""
    return is_secret(name) or looks_secret(value)


def without_secrets(line: str) -> str:
    """A line of a log without secrets: `api_key='X'`, `--api-key X`, `HF_TOKEN=X`, or by their look."""
    line = " ".join(masked(line.split(" ")))
    if looks_secret(line):
        return HIDDEN
    shown, done = "", 0
    for setting in _SETTING.finditer(line):
        value = _VALUE.match(line, setting.end())
        if setting.start() >= done and value is not None and is_secret(setting[1]):
            shown += line[done : setting.end()] + HIDDEN
            done = value.end()
    return shown + line[done:]


def masked(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without secrets: of secret flags (`--api-key X Y`, `--api-key=X`), or by their look."""
    shown: list[str] = []
    after_secret = False
    for word in argv:
        flag, equals, value = word.partition("=")
        if word.startswith("--") or (word.startswith("-") and not after_secret):
            after_secret = is_secret(flag) and not equals
            is_hidden = bool(equals) and hides(flag, value)
            shown.append(f"{flag}={HIDDEN}" if is_hidden else word)
        else:
            shown.append(HIDDEN if after_secret or looks_secret(word) else word)
    return tuple(shown)
