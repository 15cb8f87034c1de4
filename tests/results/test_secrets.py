"""Secrets are known by name."""

import pytest

from results.secrets import is_secret, masked


@pytest.mark.parametrize("name", ["HF_TOKEN", "--api-key", "hf-token", "AWS_SECRET_ACCESS_KEY", "DB_PASSWD"])
def test_secret_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["--ctx-size", "max-num-batched-tokens", "tokenizer", "NCCL_PROTO"])
def test_harmless_names(name: str) -> None:
    assert not is_secret(name)


def test_values_of_secret_flags_are_masked() -> None:
    argv = ("server", "--api-key", "planted", "--hf-token=planted", "--port", "80")
    assert masked(argv) == ("server", "--api-key", "<secret>", "--hf-token=<secret>", "--port", "80")
