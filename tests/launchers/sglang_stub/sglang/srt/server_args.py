"""Arguments by the names of SGLang 0.5.23, resolved by the rules of its speculative_hook.py."""

import argparse
import logging
import os
from typing import Any

VALUES: dict[str, Any] = {
    "model_path": None,
    "host": "127.0.0.1",
    "port": 30000,
    "device": None,
    "dtype": "auto",
    "random_seed": 0,
    "decode_log_interval": 40,
    "attention_backend": None,
    "max_running_requests": None,
    "chunked_prefill_size": 4096,
    "mem_fraction_static": None,
    "page_size": 1,
    "tp_size": 1,
    "dp_size": 1,
    "attn_dp_size": 1,
    "served_model_name": None,
    "cuda_graph_max_bs_decode": None,
    "cuda_graph_max_bs_prefill": None,
    "speculative_algorithm": None,
    "speculative_draft_model_path": None,
    "speculative_num_steps": None,
    "speculative_eagle_topk": None,
    "speculative_num_draft_tokens": None,
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
    "speculative_attention_mode": "prefill",
    "speculative_draft_attention_backend": None,
    "speculative_draft_window_size": None,
    "speculative_adaptive_config": None,
    "speculative_token_map": None,
    "speculative_ngram_max_bfs_breadth": 10,
    "speculative_ngram_min_bfs_breadth": 1,
    "speculative_ngram_match_type": "BFS",
    "speculative_ngram_max_trie_depth": 18,
}
SWITCHES = (
    "enable_metrics",
    "skip_server_warmup",
    "enable_mixed_chunk",
    "disable_overlap_schedule",
    "speculative_adaptive",
    "speculative_use_rejection_sampling",
    "speculative_use_block_verification",
)
CHOICES = {"attention_backend": ["triton", "torch_native", "flashinfer", "fa3", "trtllm_mha"]}
ALIASES = {"tp_size": ["--tensor-parallel-size"], "model_path": ["--model"]}
KINDS = {"max_running_requests": int, "mem_fraction_static": float, "cuda_graph_max_bs_decode": int}


class _Deprecated(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str, new_flag: str) -> None:
        self.new_flag = new_flag
        super().__init__(option_strings, dest, nargs=0, default=False)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, True)


class ServerArgs:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = vars(given)

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        for name, default in VALUES.items():
            kind = KINDS.get(name) or (str if default is None else type(default))
            if name.startswith("speculative_num") or name in (
                "speculative_eagle_topk",
                "speculative_draft_window_size",
            ):
                kind = int
            names = ["--" + name.replace("_", "-"), *ALIASES.get(name, [])]
            parser.add_argument(*names, dest=name, type=kind, default=default, choices=CHOICES.get(name))
        for name in SWITCHES:
            parser.add_argument("--" + name.replace("_", "-"), action="store_true")
        parser.add_argument("--cuda-graph-bs-decode", nargs="+", type=int)
        parser.add_argument("--enable-tf32-matmul", action=argparse.BooleanOptionalAction, default=False)
        parser.add_argument(
            "--disable-cuda-graph", action=_Deprecated, new_flag="--cuda-graph-backend-decode disabled"
        )

    def resolve_once(self) -> None:
        if os.environ.get("STUB_NO_GPU"):
            raise RuntimeError("no accelerator was found")
        os.environ["STUB_NO_GPU"] = "set while resolving: the next question must not see it"
        print("resolving")  # noise that must not reach the answers
        given = self._given
        given["mem_fraction_static"] = given["mem_fraction_static"] or 0.875
        if given["max_running_requests"] == 16:
            given["chunked_prefill_size"] = 2048
        given["attention_backend"] = given["attention_backend"] or "triton"
        if given["speculative_algorithm"]:
            self._speculate(given)

    def _speculate(self, given: dict[str, Any]) -> None:
        algorithm = given["speculative_algorithm"].upper()
        if algorithm not in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"):
            raise ValueError(f"Unknown speculative algorithm name: {algorithm}")
        given["speculative_algorithm"] = "EAGLE" if algorithm == "NEXTN" else algorithm
        given["max_running_requests"] = given["max_running_requests"] or 48
        given["disable_overlap_schedule"] = True
        given["enable_mixed_chunk"] = False
        if algorithm != "NGRAM" and given["speculative_eagle_topk"] == 1:
            given["speculative_num_draft_tokens"] = given["speculative_num_steps"] + 1

    def resolved_dict(self) -> dict[str, Any]:
        return dict(self._given)


def prepare_server_args(argv: list[str]) -> ServerArgs:
    logging.warning("parsing")
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return ServerArgs(parser.parse_args(argv))
