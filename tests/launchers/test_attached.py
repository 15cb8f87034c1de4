"""Engines of servers that somebody else runs: what they find out from canned answers, and refuse."""

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from launchers.attach import AttachedEndpoint
from launchers.engines import attached
from launchers.engines.attached import SPECULATING, UNKNOWN, Attached, attach
from launchers.engines.http import headers_for, use_key
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import Point, SpecCounters
from tests.launchers.http_server import canned


def models(name: str = "some/model", **more: object) -> dict[str, object]:
    return {"/v1/models": {"object": "list", "data": [{"id": name, **more}]}}


SGLANG: Mapping[str, Any] = {
    **models("/models/target", owned_by="sglang", root="/models/target", max_model_len=2048),
    "/server_info": {
        "model_path": "/models/target",
        "api_key": "PLANTED-KEY",
        "tp_size": 2,
        "attention_backend": "fa3",
        "port": 30000,
        "launch_command": "python -m sglang.launch_server",
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 12,
        "speculative_attention_mode": "prefill",
        "speculative_accept_threshold_single": 1.0,
        "max_total_num_tokens": 8192,
        "max_req_input_len": 2042,
        "version": "0.5.23",
        "internal_states": [{"last_gen_throughput": 21.3, "memory_usage": {"weight": 0.0}}],
    },
    "/v1/loads": {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0}]},
    "/metrics": 'sglang:generation_tokens_total{tp_rank="0"} 120.0\n',
    "/flush_cache": "Cache flushed.",
}
VLLM_METRICS = """\
vllm:num_requests_running{engine="0"} 0.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:generation_tokens_total{engine="0"} 120.0
"""
VLLM_DRAFTS = """\
vllm:spec_decode_num_drafts_total{engine="0"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 120.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 10.0
"""
VLLM: Mapping[str, Any] = {
    **models(owned_by="vllm", max_model_len=1024),
    "/version": {"version": "0.32.0"},
    "/metrics": VLLM_METRICS + VLLM_DRAFTS,
}
VLLM_CONFIG: Mapping[str, Any] = {
    "model_config": {"model": "/models/target", "hf_token": "PLANTED-KEY", "max_model_len": 1024},
    "scheduler_config": {"max_num_seqs": 8},
    "speculative_config": {"method": "eagle3", "model": "/models/head", "num_speculative_tokens": 3},
}
LLAMACPP: Mapping[str, Any] = {
    **models("model.gguf", owned_by="llamacpp"),
    "/props": {"model_path": "/models/model.gguf", "build_info": "b11549", "total_slots": 1},
    "/slots": [{"id": 0, "n_ctx": 1024, "speculative": True, "is_processing": False}],
}
LLAMACPP_METRICS = """\
llamacpp:requests_processing 0
llamacpp:requests_deferred 0
llamacpp:tokens_predicted_total 120
llamacpp:spec_decode_num_drafts_total 30
llamacpp:spec_decode_num_draft_tokens_total 90
llamacpp:spec_decode_num_accepted_tokens_total 45
"""


@contextmanager
def attached_to(answers: Mapping[str, Any], tmp_path: Path) -> Iterator[tuple[Attached, Endpoint]]:
    with canned(answers, tmp_path / "log") as server:
        yield attach(server.base_url), AttachedEndpoint(server.base_url, tmp_path / "none")


def without(answers: Mapping[str, Any], *paths: str) -> dict[str, Any]:
    return {path: answer for path, answer in answers.items() if path not in paths}


def changed(answers: Mapping[str, Any], path: str, **fields: object) -> dict[str, Any]:
    return {**answers, path: {**answers[path], **fields}}


EAGLE3 = Point("EAGLE3", {"num_steps": 3, "topk": 4, "draft_tokens": 12})


@pytest.mark.parametrize(
    ("answers", "version", "point"),
    [
        (SGLANG, "SGLang 0.5.23", EAGLE3),
        (changed(SGLANG, "/server_info", speculative_algorithm=None), "SGLang 0.5.23", Point("none")),
        (
            {**without(SGLANG, "/server_info"), "/get_server_info": SGLANG["/server_info"]},
            "SGLang 0.5.23",
            EAGLE3,
        ),
        (VLLM, "vLLM 0.32.0", Point(SPECULATING, {"num_speculative_tokens": 3})),
        ({**VLLM, "/metrics": VLLM_METRICS}, "vLLM 0.32.0", Point("none")),
        (without(VLLM, "/metrics"), "vLLM 0.32.0", Point(UNKNOWN)),
        (
            {**VLLM, "/server_info": {"vllm_config": VLLM_CONFIG}},
            "vLLM 0.32.0",
            Point("eagle3", {"num_speculative_tokens": 3}),
        ),
        (
            {**VLLM, "/server_info": {"vllm_config": {**VLLM_CONFIG, "speculative_config": None}}},
            "vLLM 0.32.0",
            Point("none"),
        ),
        (LLAMACPP, "llama.cpp b11549", Point(SPECULATING)),
        ({**LLAMACPP, "/slots": [{"n_ctx": 8, "speculative": False}]}, "llama.cpp b11549", Point("none")),
        (without(LLAMACPP, "/slots"), "llama.cpp b11549", Point(UNKNOWN)),
        (models(), "OpenAI API, version unknown", Point(UNKNOWN)),
    ],
)
def test_a_server_is_known_by_what_it_tells(
    answers: Mapping[str, Any], version: str, point: Point, tmp_path: Path
) -> None:
    with attached_to(answers, tmp_path) as (engine, endpoint):
        served = engine.resolve("any", None, {}, {})
        assert engine.version() == version
        assert engine.found.point == point
        assert engine.starting_points(served) == [point]
        assert engine.command(point, served, 1) == (endpoint.base_url,)
        assert engine.identity(served)["url"] == endpoint.base_url
        back = engine.read_back(endpoint, point, served)
        assert back.speculating is {"none": False, UNKNOWN: None}.get(point.method, True)


@pytest.mark.parametrize("answers", [SGLANG, {**VLLM, "/server_info": {"vllm_config": VLLM_CONFIG}}])
def test_settings_in_effect_are_kept_and_secrets_are_not(answers: Mapping[str, Any], tmp_path: Path) -> None:
    with attached_to(answers, tmp_path) as (engine, _):
        told = engine.found.effective
    assert "PLANTED-KEY" not in str(told)
    assert (told.get("--tp-size"), told.get("scheduler_config.max_num_seqs")) in ((2, None), (None, 8))
    assert told["method"] in ("EAGLE3", "eagle3")
    assert "--port" not in told and "memory_usage" not in str(told)


@pytest.mark.parametrize(
    ("answers", "counted", "load", "generated", "resets"),
    [
        (SGLANG, None, (0, 0), 120, True),
        (VLLM, SpecCounters(40, 120, 60, (30, 20, 10)), (0, 0), 120, False),
        ({**VLLM, "/reset_prefix_cache": "{}"}, SpecCounters(40, 120, 60, (30, 20, 10)), (0, 0), 120, True),
        ({**LLAMACPP, "/metrics": LLAMACPP_METRICS}, SpecCounters(30, 90, 45), (0, 0), 120, True),
        (LLAMACPP, None, (0, 0), None, True),
        (models(), None, None, None, False),
    ],
)
def test_counters_gauges_and_caches(
    answers: Mapping[str, Any],
    counted: SpecCounters | None,
    load: tuple[int, int] | None,
    generated: int | None,
    resets: bool,
    tmp_path: Path,
) -> None:
    with attached_to(answers, tmp_path) as (engine, endpoint):
        served = engine.resolve("any", None, {}, {})
        assert engine.counters(endpoint) == counted
        assert engine.admission(endpoint) == load
        assert engine.generated_tokens(endpoint) == generated
        assert engine.reset_cache(endpoint) is resets
        notes = " ".join(engine.notes(served))
    assert ("could not be reset" in notes) is not resets
    assert ("cannot be seen" in notes) is (load is None)
    assert "log cannot be read" in notes


def test_only_engines_that_have_it_are_told_to_ignore_the_end(tmp_path: Path) -> None:
    for answers, has in ((SGLANG, True), (VLLM, True), (LLAMACPP, True), (models(), False)):
        with attached_to(answers, tmp_path) as (engine, _):
            assert ("ignore_eos" in engine.request_fields(fixed_length=True)) is has


@pytest.mark.parametrize(
    ("answers", "context"), [(SGLANG, 2042), (VLLM, 1024), (LLAMACPP, 1024), (models(), None)]
)
def test_the_context_is_known_where_it_is_told(
    answers: Mapping[str, Any], context: int | None, tmp_path: Path
) -> None:
    with attached_to(answers, tmp_path) as (engine, endpoint):
        assert engine.context_tokens(endpoint) == context


def test_lossy_settings_are_found_out(tmp_path: Path) -> None:
    loose = changed(SGLANG, "/server_info", speculative_accept_threshold_single=0.5)
    synthetic = {**VLLM_CONFIG["speculative_config"], "rejection_sample_method": "synthetic"}
    for answers in (
        loose,
        {**VLLM, "/server_info": {"vllm_config": {**VLLM_CONFIG, "speculative_config": synthetic}}},
    ):
        with attached_to(answers, tmp_path) as (engine, _):
            served = engine.resolve("any", None, {}, {})
            assert engine.lossy(engine.found.point, served)
    with attached_to(SGLANG, tmp_path) as (engine, _):
        assert not engine.lossy(engine.found.point, served)


BUSY: Mapping[str, tuple[Mapping[str, Any], str, object]] = {
    "sglang": (SGLANG, "/v1/loads", {"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1}]}),
    "vllm": (VLLM, "/metrics", VLLM_METRICS.replace('running{engine="0"} 0.0', 'running{engine="0"} 2.0')),
    "llamacpp": (LLAMACPP, "/slots", [{"n_ctx": 8, "speculative": True, "is_processing": True}]),
}


@pytest.mark.parametrize("kind", BUSY)
def test_requests_of_others_are_an_error_that_says_so(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "IDLE_WAIT_S", 0.0)
    answers, path, busy = BUSY[kind]
    now = dict(answers)
    with attached_to(now, tmp_path) as (engine, endpoint):
        now[path] = busy
        with pytest.raises(MeasurementInvalid, match="running and") as caught:
            engine.counters(endpoint)
    assert caught.value.reason is Reason.OTHER_LOAD


def test_others_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = {**VLLM, "/metrics": BUSY["vllm"][2]}
    waits: list[float] = []

    def idle_after_three(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            now.update(VLLM)

    with attached_to(now, tmp_path) as (engine, endpoint):
        monkeypatch.setattr("launchers.engines.attached.time.sleep", idle_after_three)
        engine.counters(endpoint)
    assert len(waits) == 3


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (changed(SGLANG, "/server_info", tp_size=4), "--tp-size 2 -> 4"),
        (changed(SGLANG, "/server_info", speculative_num_steps=5), "num_steps 3 -> 5"),
        (without(SGLANG, "/server_info"), "another engine"),
    ],
)
def test_a_server_that_was_restarted_otherwise_is_another(
    later: Mapping[str, Any], told: str, tmp_path: Path
) -> None:
    now = dict(SGLANG)
    with attached_to(now, tmp_path) as (engine, endpoint):
        served = engine.resolve("any", None, {}, {})
        engine.read_back(endpoint, EAGLE3, served)
        now.clear()
        now.update(later)
        with pytest.raises(MeasurementInvalid, match=told) as caught:
            engine.read_back(endpoint, EAGLE3, served)
    assert caught.value.reason is Reason.WRONG_SERVER


def test_a_model_is_chosen_by_id_or_root(tmp_path: Path) -> None:
    listed = {"/v1/models": {"data": [{"id": "base"}, {"id": "tuned", "root": "/models/tuned"}]}}
    with canned(listed, tmp_path / "log") as server:
        for wanted, model in (("", "base"), ("tuned", "tuned"), ("/models/tuned", "tuned"), ("x", "base")):
            assert attach(server.base_url, wanted).found.model == model


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, "no server that speaks OpenAI's API .*HTTP 404"),
        ({"/v1/models": "<html>hello</html>"}, "no server that speaks OpenAI's API"),
        ({"/v1/models": {"data": []}}, "names no model"),
        ({"/v1/models": ["x"]}, "names no model"),
    ],
)
def test_what_is_no_server_is_a_usage_error(answers: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    with canned(answers, tmp_path / "log") as server, pytest.raises(UsageError, match=message):
        attach(server.base_url)


def test_an_address_where_nothing_answers_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"nothing answers there .*refused"):
        attach("http://127.0.0.1:1")


@contextmanager
def guarded(key: str, certificate: Path | None = None) -> Iterator[str]:
    """A server that answers only requests with this key; over TLS if it has a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == f"Bearer {key}"
            refused = f'{{"error": "no such key: {self.headers.get("Authorization")}"}}'.encode()
            body = b'{"data": [{"id": "m"}]}' if allowed else refused
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http{'s' * (certificate is not None)}://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_asks_for_a_key_gets_it() -> None:
    with guarded("PLANTED-KEY") as url:
        assert attach(url, key="PLANTED-KEY").found.model == "m"
        with pytest.raises(UsageError, match="api_key_env") as caught:
            attach(url, key="PLANTED-BUT-WRONG")
    assert "PLANTED" not in str(caught.value)
    assert "no such key" in str(caught.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_a_server_behind_a_certificate_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *make.split(), *names], check=True, capture_output=True)
    file = tmp_path / "server.pem"
    file.write_text(key.read_text() + certificate.read_text())
    with guarded("PLANTED-KEY", file) as url:
        with pytest.raises(UsageError, match="SSL_CERT_FILE"):
            attach(url, key="PLANTED-KEY")
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert attach(url, key="PLANTED-KEY").found.model == "m"


def test_a_key_goes_to_its_own_server_alone() -> None:
    use_key("http://127.0.0.1:80", "PLANTED-KEY")
    assert headers_for("http://127.0.0.1:80/v1/models")
    assert not headers_for("http://127.0.0.1:8000/v1/models")
    use_key("http://127.0.0.1:80", "")
    assert not headers_for("http://127.0.0.1:80/v1/models")


def test_a_method_that_this_tool_does_not_know_is_kept_as_it_is_told(tmp_path: Path) -> None:
    answers = changed(SGLANG, "/server_info", speculative_algorithm="DSPARK")
    with attached_to(answers, tmp_path) as (engine, _):
        point = engine.found.point
    assert (point.method, point.knobs["num_steps"]) == ("DSPARK", 3)


def test_a_server_that_went_away_is_named(tmp_path: Path) -> None:
    with attached_to(VLLM, tmp_path) as (engine, endpoint):
        pass
    assert not engine.is_ready(endpoint)
    reason, evidence = engine.cause("", None, ready=True)
    assert reason is Reason.SERVER_DIED
    assert endpoint.base_url in evidence
