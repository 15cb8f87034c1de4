"""HTTP to a server that is measured: a connection that fails means that the server is gone."""

import os
from collections.abc import Mapping
from typing import Any

import requests

from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.secrets import HIDDEN

TIMEOUT_S = 10

_keys: dict[str, str] = {}  # of servers that ask for one, by address; held in memory alone


def use_key(base_url: str, key: str) -> None:
    """Send this API key with whatever is asked of this server from now on."""
    _keys[base_url] = key


def headers_for(url: str) -> Mapping[str, str]:
    """The headers that carry the key for this server; empty if it has none. Never to be recorded."""
    key = next((k for base, k in _keys.items() if url == base or url.startswith(f"{base}/")), "")
    return {"Authorization": f"Bearer {key}"} if key else {}


def ask(method: str, url: str, *, json: object = None, timeout_s: float = TIMEOUT_S) -> requests.Response:
    """Raises MeasurementInvalid(SERVER_DIED, or HANG if it accepts but does not answer)."""
    try:
        with _session() as session:
            headers = headers_for(url)
            return session.request(method, url, json=json, timeout=timeout_s, headers=headers)
    except requests.Timeout:
        raise MeasurementInvalid(Reason.HANG, f"{url}: no answer within {timeout_s:g} s") from None
    except requests.RequestException as error:
        raise MeasurementInvalid(Reason.SERVER_DIED, f"{url}: {_root(error)}") from None


def get_json(url: str) -> Any:
    """Raises MeasurementInvalid; WRONG_SERVER if the answer is an error or not JSON."""
    return _json(ask("GET", url))


def post_json(url: str, body: object) -> Any:
    """As `get_json`, with a JSON body sent."""
    return _json(ask("POST", url, json=body))


def is_ok(url: str) -> bool:
    """Whether the server answers this GET with success; False while it is not up."""
    try:
        with _session() as session:
            return session.get(url, timeout=TIMEOUT_S, headers=headers_for(url)).ok
    except requests.RequestException:
        return False


def _session() -> requests.Session:
    """Without the proxies of the environment, which would be measured too.

    Certificates are checked against the file that the load client uses as well.
    """
    session = requests.Session()
    session.trust_env = False
    session.verify = os.environ.get("SSL_CERT_FILE") or True
    return session


def _json(answer: requests.Response) -> Any:
    try:
        if answer.ok:
            return answer.json()
    except requests.JSONDecodeError:
        pass
    told = _without_key(answer.text, str(answer.url))[:200]
    raise MeasurementInvalid(Reason.WRONG_SERVER, f"{answer.url}: HTTP {answer.status_code} {told!r}")


def _without_key(text: str, url: str) -> str:
    """A server that refuses a key may quote it."""
    for value in headers_for(url).values():
        text = text.replace(value.removeprefix("Bearer "), HIDDEN)
    return text


def _root(error: BaseException) -> str:
    while error.__context__ is not None:
        error = error.__context__
    return str(error) or type(error).__name__
