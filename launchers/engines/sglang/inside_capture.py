"""Runs inside SGLang's own processes: writes down what its target computes and what its drafter is given.

A plugin of SGLang (`sglang.srt.plugins`). It uses nothing of this project; what it writes is described in
`launchers/engines/captures.py`. A round of the target is followed by a pass of the drafter over the tokens
that the round gave: both become one file as soon as the second is over. A fault here never ends the server:
it is told in `unseen.*.txt`, and no more is written.

The target's states are those that its own norms read: the residual that a layer's first norm hands on, or all
that it is given where the stream begins. So they are whole even where what the drafter is given is not.

From SGLang 0.5.23 (srt/model_executor/model_runner.py, srt/layers/layer_boundary, srt/speculative); the same
names are in 0.5.16 to 0.5.18.
"""

import inspect
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

ASKED = "TUNER_CAPTURE"  # a JSON object: folder, layers of the target, boundaries (null = all)
RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner"
HEALTH = "HEALTH_CHECK"  # requests that SGLang makes itself (srt/constants.py)
PROMPT, VERIFY = ("EXTEND", "MIXED"), ("TARGET_VERIFY",)
EXTENDS_DRAFT = (*PROMPT, "DRAFT_EXTEND_V2")
FIRST_NORMS = ("input_layernorm", "attention_norm", "ln_1", "norm1")
FUSED_NORMS = ("forward_with_allreduce_fusion", "forward_with_allreduce_fusion_quant_per_group")
FAULTS = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    SafetensorError,  # a full disk as well
    TypeError,
    ValueError,
)

Record = dict[str, Any]


def register() -> None:
    """SGLang calls this in each of its processes, before a model is loaded."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    watch = Watch(json.loads(os.environ[ASKED]))
    HookRegistry.register(f"{RUNNER}.load_model", watch.loaded, HookType.AFTER)
    HookRegistry.register(f"{RUNNER}.forward", watch.passing, HookType.AROUND)


class Unseen(Exception):
    """Something here is not as it is known: what follows would be wrong."""


class Watch:
    """Watches the target and the drafter of one process."""

    def __init__(self, asked: Record) -> None:
        self.folder = Path(asked["folder"])
        self.layers: int = asked["layers"]
        self.boundaries: list[int] | None = asked["boundaries"]
        self.rank = 0
        self.is_off = False
        self.watched: dict[int, str] = {}  # model runners by identity: target or draft
        self.now: Record | None = None  # the pass that runs
        self.round: Record | None = None  # the target's last
        self.prompts: dict[str, int] = {}  # tokens by request
        self.numbers = itertools.count()

    @property
    def name(self) -> str:
        return f"dp0.tp{self.rank}"

    def guarded(self, look: Callable[..., None], *args: Any) -> None:
        if self.is_off:
            return
        try:
            look(*args)
        except (Unseen, *FAULTS) as error:
            self.is_off, self.now, self.round = True, None, None
            text = str(error) if isinstance(error, Unseen) else f"{type(error).__name__}: {error}"
            self.tell("unseen", text)

    def tell(self, kind: str, line: str) -> None:
        try:
            with self.folder.joinpath(f"{kind}.{self.name}.txt").open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError:
            self.is_off = True  # no room, or no folder any more: nobody can be told

    # What SGLang calls

    def loaded(self, _result: Any, runner: Any, *_args: Any, **_kwargs: Any) -> None:
        self.guarded(self.attach, runner)

    def passing(self, forward: Callable[..., Any], runner: Any, *args: Any, **kwargs: Any) -> Any:
        kind = self.watched.get(id(runner))
        if kind is not None:
            self.guarded(lambda: self.begin(kind, args[0] if args else kwargs["forward_batch"]))
        result = forward(runner, *args, **kwargs)
        if kind is not None:
            self.guarded(self.end)
        return result

    # In the order in which it happens

    def attach(self, runner: Any) -> None:
        if getattr(runner, "draft_model_idx", None) not in (None, 0):
            return  # of several drafters the first is given the target's states
        kind = "draft" if runner.is_draft_worker else "target"
        ranks = 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if kind == "draft":
            self.hook_fusion(runner.model)
        else:
            self.hook_target(runner.model, ranks)
        self.watched[id(runner)] = kind
        self.tell("attached", f"{kind}: {type(runner.model).__name__}")

    def begin(self, kind: str, batch: Any) -> None:
        self.now = None
        mode, requests = batch.forward_mode.name, getattr(batch, "rids", None)
        if not requests or mode not in ((*PROMPT, *VERIFY) if kind == "target" else EXTENDS_DRAFT):
            return  # made up for a warm-up, idle, or a step of a draft
        if kind == "target":
            for request, tokens in zip(requests, batch.orig_seq_lens if mode in PROMPT else (), strict=False):
                self.prompts.setdefault(request, int(tokens))
        self.now = {
            "kind": kind,
            "requests": list(requests),
            "rows": rows_of(batch, mode),
            "drafts": len(batch.input_ids) // len(requests) - 1 if mode in VERIFY else 0,
            "ids": on_cpu(batch.input_ids).long(),
            "positions": on_cpu(batch.positions).long(),
        }
        if kind == "draft":
            self.now["kept"] = kept_of(batch.spec_info, mode) or self.now["rows"]
            given = batch.spec_info.hidden_states
            self.now["served_aux"] = None if given is None else on_cpu(given)

    def end(self) -> None:
        record, self.now = self.now, None
        if record is None:
            return
        if record["kind"] == "target":
            self.round = record
            return
        target, self.round = self.round, None
        if target is None or target["requests"] != record["requests"]:
            raise Unseen(
                "the drafter was given the tokens of a round that its target did not run just before"
            )
        for number, request in enumerate(record["requests"]):
            if not request.startswith(HEALTH):
                self.write(number, target, record)

    def write(self, number: int, target: Record, draft: Record) -> None:
        """One request's part of a round. Rejected drafts come after the rows that are kept."""
        kept = draft["kept"][number]
        in_target, in_draft = start_of(target, number), start_of(draft, number)
        at = slice(in_target, in_target + kept)
        tensors = {f"b{b}": cut(state, target, at) for b, state in target.items() if isinstance(b, int)}
        tensors |= {"input_ids": target["ids"][at], "positions": target["positions"][at]}
        at = slice(in_draft, in_draft + kept)
        given = {name: draft[name] for name in ("served_aux", "served_fc") if draft.get(name) is not None}
        tensors |= {name: cut(tensor, draft, at) for name, tensor in given.items()}
        tensors["served_ids"] = draft["ids"][at]
        request = draft["requests"][number]
        told = {
            "request": request,
            "prompt_tokens": str(self.prompts[request]),
            "max_tokens": "",
            "drafts": str(target["drafts"]),
            "next_id": str(int(tensors["served_ids"][-1])),
        }
        name = f"{time.time_ns():020d}.{next(self.numbers)}.{self.name}"
        unfinished = self.folder / f"{name}.part"
        save_file({n: t.contiguous() for n, t in tensors.items()}, unfinished, told)
        unfinished.rename(self.folder / f"{name}.safetensors")

    # Where it looks

    def hook_fusion(self, model: torch.nn.Module) -> None:
        for name, module in model.named_modules():
            if name.rpartition(".")[2] == "fc":
                module.register_forward_hook(self.on_fusion)

    def on_fusion(self, _module: Any, args: Any, output: Any) -> None:
        """EAGLE's own fc takes the embedding beside the state: that is no fusion of states."""
        given = self.now["served_aux"] if self.now else None
        if given is not None and args[0].shape == given.shape:
            self.guarded(self.keep, "served_fc", output)

    def hook_target(self, model: torch.nn.Module, ranks: int) -> None:
        parent, layers = decoder_of(model, self.layers)
        wanted = range(self.layers + 2) if self.boundaries is None else self.boundaries
        for boundary in wanted if self.rank == 0 else ():
            if boundary < self.layers:
                self.hook_layer(layers[boundary], boundary)
            else:
                self.hook_norm(final_norm(parent), boundary, is_after=boundary > self.layers)
        if ranks > 1:
            for layer in layers:
                ask_for_whole_states(layer)

    def hook_layer(self, layer: torch.nn.Module, boundary: int) -> None:
        norm = next((getattr(layer, name) for name in FIRST_NORMS if hasattr(layer, name)), None)
        if norm is not None:
            self.hook_norm(norm, boundary)
        elif hasattr(layer, "attn_boundary"):
            raise Unseen(f"{type(layer).__name__}: what of its norms comes first is not known")
        else:

            def on_input(_module: Any, args: Any, kwargs: Any) -> None:
                self.guarded(lambda: self.keep(boundary, layer_input(args, kwargs)))

            layer.register_forward_pre_hook(on_input, with_kwargs=True)

    def hook_norm(self, norm: torch.nn.Module, boundary: int, *, is_after: bool = False) -> None:
        """Also where the norm is fused with what comes before it, and is not called as a module."""

        def on_norm(args: Any, kwargs: Any, output: Any) -> None:
            of = normed if is_after else stream
            self.guarded(lambda: self.keep(boundary, of(args, kwargs, output)))

        norm.register_forward_hook(lambda _, *call: on_norm(*call), with_kwargs=True)
        for name in FUSED_NORMS:
            if hasattr(norm, name):
                setattr(norm, name, seen(getattr(norm, name), on_norm))

    def keep(self, name: int | str, tensor: torch.Tensor) -> None:
        if self.now is not None:
            self.now[name] = on_cpu(tensor)  # type: ignore[index]


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, at once: SGLang writes into many of its tensors again."""
    return tensor.detach().to("cpu", copy=True)


def rows_of(batch: Any, mode: str) -> list[int]:
    """Rows of each request."""
    rows, requests = len(batch.input_ids), len(batch.rids)
    if mode not in PROMPT:
        return [rows // requests] * requests
    told = batch.extend_seq_lens
    return [int(n) for n in told] if told is not None else [int(n) for n in batch.extend_seq_lens_cpu]


def kept_of(spec: Any, mode: str) -> list[int] | None:
    """Rows of each request that its round gave, the target's own token among them; None = all."""
    if mode in PROMPT:
        return None
    counts = getattr(spec, "num_accept_tokens", None)
    return [int(n) for n in (spec.num_correct_drafts + 1 if counts is None else counts)]


def start_of(record: Record, number: int) -> int:
    return sum(record["rows"][:number])


def cut(tensor: torch.Tensor, record: Record, at: slice) -> torch.Tensor:
    if len(tensor) != len(record["ids"]):
        raise Unseen(
            f"{len(tensor)} rows of states for {len(record['ids'])} tokens: is a pass split over ranks?"
        )
    return tensor[at]


def decoder_of(model: torch.nn.Module, count: int) -> tuple[torch.nn.Module, torch.nn.ModuleList]:
    """What has the layers and the final norm, and the layers: a list in no other list, so no experts."""
    fitting = [found for found in outermost_lists(model) if len(found[1]) == count]
    if not fitting:
        raise Unseen(f"{type(model).__name__} has no list of {count} layers")
    return max(
        fitting, key=lambda found: hasattr(found[0], "embed_tokens")
    )  # rather than a tower's for images


def outermost_lists(module: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, torch.nn.ModuleList]]:
    for child in module.children():
        if isinstance(child, torch.nn.ModuleList):
            yield module, child
        else:
            yield from outermost_lists(child)


def final_norm(parent: torch.nn.Module) -> torch.nn.Module:
    norms = [child for name, child in parent.named_children() if "norm" in name or name.startswith("ln_f")]
    if not norms:
        raise Unseen(f"{type(parent).__name__} has no norm after its layers")
    return norms[-1]


def stream(args: Any, kwargs: Any, output: Any) -> Any:
    """The residual that a norm hands on beside what is normed, or all that it was given."""
    return output[-1] if isinstance(output, tuple) else [*args, *kwargs.values()][0]


def normed(args: Any, kwargs: Any, output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def layer_input(args: Any, kwargs: Any) -> torch.Tensor:
    """What a layer without a first norm is given: the hidden state, and the residual if it is apart."""
    given = [t for t in (*args, *kwargs.values()) if torch.is_tensor(t) and t.is_floating_point()]
    parts = [t for t in given if t.shape == given[0].shape]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def seen(method: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        output = method(*args, **kwargs)
        look(args, kwargs, output)
        return output

    return watched


def ask_for_whole_states(layer: torch.nn.Module) -> None:
    """With several ranks a layer may leave its sum to the next. It does not if a state is asked for."""
    if "capture_output" in inspect.signature(layer.forward).parameters:
        layer.register_forward_pre_hook(_asking, with_kwargs=True)


def _asking(_module: Any, args: Any, kwargs: Any) -> Any:
    if kwargs.get("capture_output") is None:
        kwargs["capture_output"] = lambda hidden, owned=False: None
    return args, kwargs
