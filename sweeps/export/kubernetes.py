"""A Deployment and a Service for Kubernetes."""

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launchers.containers.options import Volume, bytes_of
from results.errors import UsageError
from sweeps.export.box import Box, box, referring
from sweeps.export.compose import patience_s
from sweeps.export.deployable import Deployable, commented
from sweeps.export.yaml_text import dump, marked

LONGEST = 52  # of a label's 63: what Kubernetes appends to names of pods must fit
NO_IMAGE = "SET-THE-IMAGE"  # in capitals, which no image can have: it fails at once, not later


def kubernetes(what: Deployable) -> tuple[str, tuple[str, ...]]:
    """(the file, notes)."""
    found = box(what, pod=True)
    name = object_name(what.name)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "tuner"}
    notes = (*found.notes, *_to_set(what, found, name), *_left_out(found))
    text = dump(_deployment(what, found, name, labels), _service(what, name, labels))
    marks = [(NO_IMAGE, f"TO SET: an image with {what.engine_version}")]
    marks += [("hostPath:", "TO SET: where the nodes have it, or a persistentVolumeClaim")]
    return commented((*what.about, *notes)) + marked(text, marks), notes


def object_name(name: str) -> str:
    """A name for any object: RFC 1035, so also for a Service; never empty."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    first = plain if re.match(r"[a-z]", plain) else f"tuner-{plain}"
    return first[:LONGEST].strip("-")


def _deployment(what: Deployable, found: Box, name: str, labels: dict[str, str]) -> dict[str, Any]:
    pod = {
        # The variables that Kubernetes sets for a Service could be read as the engine's own (VLLM_PORT).
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [_container(what, found, name)],
        "volumes": [
            {"name": "shm", "emptyDir": _shm(what)},
            *({"name": f"data-{i}", **_source(volume)} for i, volume in enumerate(found.volumes)),
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels, "annotations": {"tuner/run": what.name}},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # a second one would wait for the GPUs of the first
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(what: Deployable, name: str, labels: dict[str, str]) -> dict[str, Any]:
    port = {"name": "http", "port": what.server.port, "targetPort": "http"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"app.kubernetes.io/name": name}, "ports": [port]},
    }


def _container(what: Deployable, found: Box, name: str) -> dict[str, Any]:
    escaped = tuple(_escape(word) for word in found.argv)
    words = [referring(escaped, at, "$(%s)") for at in range(len(escaped))]
    container: dict[str, Any] = {
        "name": "server",
        "image": found.image or NO_IMAGE,
        "command": words[:1],
        "args": words[1:],
        "ports": [{"name": "http", "containerPort": what.server.port}],
        "env": [*_plain_variables(found), *_secret_variables(found, name)],
        "resources": _resources(what, found),
        **_probes(what),
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            *(_mount(i, volume) for i, volume in enumerate(found.volumes)),
        ],
    }
    if security := _security(found):
        container["securityContext"] = security
    return {key: value for key, value in container.items() if value not in ([], {})}


def _escape(text: str) -> str:
    """Of $(NAME), which Kubernetes expands; $$ is one $."""
    return text.replace("$", "$$")


def _plain_variables(found: Box) -> list[dict[str, Any]]:
    return [{"name": name, "value": _escape(value)} for name, value in found.given.items()]


def _secret_variables(found: Box, name: str) -> list[dict[str, Any]]:
    return [
        {"name": n, "valueFrom": {"secretKeyRef": {"name": f"{name}-secrets", "key": n}}}
        for n in found.secrets
    ]


def _resources(what: Deployable, found: Box) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if what.gpus:
        limits["nvidia.com/gpu"] = what.gpus
    if found.options.memory is not None:
        limits["memory"] = str(bytes_of("container.memory", found.options.memory))
    if found.options.cpus is not None:
        limits["cpu"] = f"{found.options.cpus:g}"
    return {"limits": limits} if limits else {}


def _probes(what: Deployable) -> dict[str, Any]:
    """A load of minutes is no failure, and a busy server may answer late."""
    ask = {"httpGet": {"path": what.server.engine.health, "port": "http"}}
    tries = math.ceil(patience_s(what) / 10)
    return {
        "startupProbe": {**ask, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": tries},
        "readinessProbe": {**ask, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**ask, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def _shm(what: Deployable) -> dict[str, Any]:
    """As large as in the run; without a size of its own, up to the memory of the node."""
    size = {"sizeLimit": str(what.shm_bytes)} if what.shm_bytes is not None else {}
    return {"medium": "Memory", **size}


def _source(volume: Volume) -> dict[str, Any]:
    if volume.is_named:
        return {"persistentVolumeClaim": {"claimName": object_name(volume.source)}}
    path = Path(volume.source).expanduser().absolute()
    kind = "File" if path.is_file() or path.suffix == ".gguf" else "Directory"
    return {"hostPath": {"path": str(path), "type": kind}}


def _mount(number: int, volume: Volume) -> dict[str, Any]:
    if ":" in volume.target:
        raise UsageError(f"{volume.target}: Kubernetes mounts nothing at a path with ':'")
    read_only = "rw" not in volume.mode.split(",")
    return {"name": f"data-{number}", "mountPath": volume.target, "readOnly": read_only}


def _security(found: Box) -> dict[str, Any]:
    user, _, group = (found.options.user or "").partition(":")
    context: dict[str, Any] = {"privileged": True} if found.options.privileged else {}
    context |= {"runAsUser": int(user)} if user.isdigit() else {}
    context |= {"runAsGroup": int(group)} if group.isdigit() else {}
    added = found.options.options.get("cap_add")
    return context | ({"capabilities": {"add": added}} if added else {})


def _to_set(what: Deployable, found: Box, name: str) -> Iterator[str]:
    if not found.image:
        yield f"To set: the image, one with {what.engine_version} (best by digest)."
    if any(not volume.is_named for volume in found.volumes):
        yield "To set: each hostPath is where this machine has it; name the place on your nodes, or a claim."
    if found.secrets:
        literals = " ".join(f'--from-literal={n}="${n}"' for n in found.secrets)
        yield f"To set: kubectl create secret generic {name}-secrets {literals}"


def _left_out(found: Box) -> Iterator[str]:
    """What a container had and a pod cannot be told."""
    if not found.image:
        return
    options = found.options
    had = {
        "ulimits": dict(options.ulimits),
        "cpuset": options.cpuset,
        "user": options.user if options.user and not options.user.replace(":", "").isdigit() else None,
        "options": {n: v for n, v in options.options.items() if n not in ("cap_add", "init")},
    }
    for name, value in had.items():
        if value:
            yield f"Left out, since a pod cannot be told: {name} {shlex.quote(str(value))}."
