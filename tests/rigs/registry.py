"""A registry with one image of one layer, as far as a pull asks for it."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
LAYER_BYTES = 300_000


@contextmanager
def registry(slices: int = 30, pause_s: float = 0.02) -> Iterator[str]:
    """`127.0.0.1:PORT`, which serves every repository and tag; its layer comes in slices."""
    parts = _image()
    waiting = threading.Event()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.rstrip("/") == "/v2":
                self._send(b"{}", "application/json")
            elif "/manifests/" in self.path:
                self._send(parts["manifest"], MANIFEST_TYPE)
            else:
                self._send(parts[self.path.rpartition("/")[2]], "application/octet-stream")

        do_HEAD = do_GET

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            step = max(1, len(body) // slices)
            for at in range(0, len(body) if self.command == "GET" else 0, step):
                self.wfile.write(body[at : at + step])
                waiting.wait(pause_s if len(body) >= LAYER_BYTES else 0)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _image() -> dict[str, bytes]:
    """By digest, and the manifest."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        content = hashlib.shake_256(b"noise").digest(LAYER_BYTES)
        member = tarfile.TarInfo("noise")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    packed = gzip.compress(layer.getvalue(), mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["FROM=registry"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
        }
    ).encode()
    layers = [_described(packed, "application/vnd.docker.image.rootfs.diff.tar.gzip")]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _described(config, "application/vnd.docker.container.image.v1+json"),
        "layers": layers,
    }
    return {
        _digest(config): config,
        _digest(packed): packed,
        "manifest": json.dumps(manifest).encode(),
    }


def _described(body: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "size": len(body), "digest": _digest(body)}


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
