"""Secrets are known by name."""

import pytest

from results.secrets import is_secret, looks_secret, masked, without_secrets


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "--api-key", "hf-token", "AWS_SECRET_ACCESS_KEY", "DB_PASSWD", "AUTH_TOKENS"),
        *("OPENAI_APIKEY", "SSH_PASSPHRASE", "SESSION_COOKIE"),
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("--ctx-size", "max-num-batched-tokens", "tokenizer", "tokenizer-mode", "TOKENIZERS_PARALLELISM"),
        *("speculative-token-map", "eos_token_id", "long-prefill-token-threshold", "NCCL_PROTO"),
        *("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "bucket-time-to-first-token"),
        *("kt-max-deferred-experts-per-token", "prefill-delayer-token-usage-low-watermark"),
        *("tbo-token-distribution-threshold", "TIKTOKEN_ENCODINGS_BASE", "allow-credentials"),
        "num_key_value_heads",
    ],
)
def test_harmless_names(name: str) -> None:
    assert not is_secret(name)


def test_values_of_secret_flags_are_masked() -> None:
    argv = ("server", "--api-key", "planted", "--hf-token=planted", "--port", "80")
    assert masked(argv) == ("server", "--api-key", "<secret>", "--hf-token=<secret>", "--port", "80")


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("--api-key", "one", "two", "--port", "80"), ("--api-key", "<secret>", "<secret>", "--port", "80")),
        (("--api-key", "-one", "-x"), ("--api-key", "<secret>", "<secret>")),
        (("--header", "Authorization: Bearer one"), ("--header", "<secret>")),
        (("--proxy=http://me:pw@proxy:80",), ("--proxy=<secret>",)),
        (("--allow-credentials", "--port", "80"), ("--allow-credentials", "--port", "80")),
    ],
)
def test_what_else_a_command_line_hides(argv: tuple[str, ...], shown: tuple[str, ...]) -> None:
    """A flag may take many secrets, and a secret may stand behind any flag."""
    assert masked(("server", *argv)) == ("server", *shown)


@pytest.mark.parametrize(
    "value",
    [
        *("hf_" + "a1B2" * 8, "sk-proj-" + "a1B2" * 6, "ghp_" + "a1B2" * 9, "http://me:pw@proxy:80"),
        *("Bearer x", "authorization: Basic x", "redis://:pw@host:6379", "ASIA" + "A1B2" * 4),
        *("AIza" + "a1B2-" * 7, "gsk_" + "a1B2" * 6, "-----BEGIN PRIVATE KEY-----"),
    ],
)
def test_values_that_look_like_secrets(value: str) -> None:
    assert looks_secret(value)
    assert looks_secret(f"x={value} y")


@pytest.mark.parametrize(
    "value",
    [
        *("meta-llama/Llama-3", "/models/hf_llama_8b", "http://host:80/v1", "risk-free"),
        "/models/sk-a-model-with-quite-a-long-name",
    ],
)
def test_values_that_do_not(value: str) -> None:
    assert not looks_secret(value)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ServerArgs(api_key='abc', tp_size=1)", "ServerArgs(api_key=<secret>, tp_size=1)"),
        (
            "ServerArgs(api_key=None, tokenizer_mode='auto')",
            "ServerArgs(api_key=None, tokenizer_mode='auto')",
        ),
        ('{"password": "hunter2", "n": 3}', '{"password": <secret>, "n": 3}'),
        ("started with --api-key SECRET --port 1", "started with --api-key <secret> --port 1"),
        ("export HF_TOKEN=abc", "export HF_TOKEN=<secret>"),
        ("args: api_key='abc', port=1", "args: api_key=<secret>, port=1"),
        ("got Authorization: Bearer abc", "<secret>"),
        ("pulling https://me:pw@example.org/x now", "pulling <secret> now"),
        ("n_tokens = 5; eos_token: 2, max_tokens: 16", "n_tokens = 5; eos_token: 2, max_tokens: 16"),
        ("2026-01-01 12:00:00 ready", "2026-01-01 12:00:00 ready"),
    ],
)
def test_a_line_of_a_log_without_its_secrets(line: str, shown: str) -> None:
    assert without_secrets(line) == shown
