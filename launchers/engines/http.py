"""HTTP to a server of ours: a connection that fails means that the server is gone."""

from typing import Any

import requests

from results.errors import MeasurementInvalid
from results.reasons import Reason

TIMEOUT_S = 10


def ask(method: str, url: str, *, json: object = None, timeout_s: float = TIMEOUT_S) -> requests.Response:
    """Raises MeasurementInvalid(SERVER_DIED, or HANG if it accepts but does not answer)."""
    try:
        with _session() as session:
            return session.request(method, url, json=json, timeout=timeout_s)
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
            return session.get(url, timeout=TIMEOUT_S).ok
    except requests.RequestException:
        return False


def _session() -> requests.Session:
    """Without the proxies of the environment: the server is on this machine."""
    session = requests.Session()
    session.trust_env = False
    return session


def _json(answer: requests.Response) -> Any:
    try:
        if answer.ok:
            return answer.json()
    except requests.JSONDecodeError:
        pass
    raise MeasurementInvalid(
        Reason.WRONG_SERVER, f"{answer.url}: HTTP {answer.status_code} {answer.text[:200]!r}"
    )


def _root(error: BaseException) -> str:
    while error.__context__ is not None:
        error = error.__context__
    return str(error) or type(error).__name__
