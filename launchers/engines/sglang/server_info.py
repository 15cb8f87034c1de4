"""What a running SGLang says of itself."""

from collections.abc import Mapping

from launchers.engines.http import ask, get_json
from launchers.launcher import Endpoint


def server_info(endpoint: Endpoint) -> Mapping[str, object]:
    """`/server_info`, or its name in older versions."""
    answer = ask("GET", f"{endpoint.base_url}/server_info")
    if answer.ok:
        info: Mapping[str, object] = answer.json()
        return info
    older: Mapping[str, object] = get_json(f"{endpoint.base_url}/get_server_info")
    return older
