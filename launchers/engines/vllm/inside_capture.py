"""Runs inside a server of vLLM, as a plugin of it: writes down what its drafter is given, pass for pass.

Uses nothing of this project. What it writes is described in `launchers/engines/captures.py`.

It looks where both model runners do the same: a worker is handed a scheduler's step, the layers of its
target run, its drafter's `propose` is called, which passes the target's states through the drafter's
`combine_hidden_states` (if it has one) and calls the drafter's model. Nothing is changed on the way. A file
is written before the tokens of its pass leave the server.

Of tensor-parallel ranks each writes what its drafter is given, and the first the states of the target as
well. Every data-parallel rank writes. A kind of attention makes no difference: nothing is read of it.
From vLLM 0.32.0: v1/worker/worker_base.py; v1/worker/gpu_model_runner.py and
v1/spec_decode/llm_base_proposer.py (the older runner); v1/worker/gpu/model_runner.py and
v1/worker/gpu/spec_decode (the newer, which needs a GPU: read, not run).
"""

import functools
import inspect
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

ASKED = "TUNER_CAPTURE"  # a JSON object: folder, boundaries (null = all)


def install() -> None:
    """vLLM calls this once in each of its processes; only those with a worker come to anything."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    run = WorkerWrapperBase.execute_model

    @functools.wraps(run)
    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self, "_tuner_watch"):
            self._tuner_watch = Watch(self.worker, json.loads(os.environ[ASKED]))
        self._tuner_watch.begin(scheduler_output)
        output = run(self, scheduler_output, *args, **kwargs)
        self._tuner_watch.is_in_pass = False  # what runs until the next is a dummy
        return output

    WorkerWrapperBase.execute_model = execute_model


class Unseen(Exception):
    """Something here is not as it is known: what follows would be wrong."""


@dataclass
class Rows:
    """Where one request's rows are, without those of rejected drafts."""

    request: str
    in_target: slice  # of the target's pass
    in_draft: slice  # of what the drafter is given
    input_ids: Any  # of the target
    positions: Any
    next_id: int  # the token after the last of them


class Watch:
    """Watches one worker."""

    def __init__(self, worker: Any, asked: dict[str, Any]) -> None:
        self.worker, config = worker, worker.parallel_config
        self.folder = Path(asked["folder"])
        self.boundaries = asked["boundaries"]
        self.rank = worker.rank % config.tensor_parallel_size
        self.name = f"dp{config.data_parallel_rank}.tp{self.rank}"
        self.runner = worker.model_runner
        self.requests: dict[str, tuple[int, int | None]] = {}  # tokens of the prompt, most of the answer
        self.step: Any = None
        self.states: dict[int, Any] = {}  # by boundary, of the target's pass
        self.given: dict[str, Any] | None = None  # by name; None = the drafter does not run
        self.is_in_pass = False  # of the target
        self.is_off = False
        self.guarded(self.attach)

    def guarded(self, look: Any, *args: Any) -> None:
        """What cannot be seen is told in a file: the server goes on as it would have."""
        if self.is_off:
            return
        try:
            look(*args)
        except (Unseen, AttributeError, KeyError, IndexError, TypeError, RuntimeError, OSError) as error:
            self.is_off = True
            text = str(error) if isinstance(error, Unseen) else f"{type(error).__name__}: {error}"
            self.folder.joinpath(f"unseen.{self.name}.txt").write_text(text, "utf-8")

    def attach(self) -> None:
        drafter = getattr(self.runner, "speculator", None) or getattr(self.runner, "drafter", None)
        model = getattr(drafter, "model", None)
        if model is None:
            raise Unseen("this worker has no drafter with a model")
        if getattr(self.worker.speculative_config, "parallel_drafting", False):
            raise Unseen("a drafter that makes its drafts in one pass is given rows that no token stands for")
        decoder = decoder_of(self.runner.get_model())
        if self.rank == 0:
            self.hook_target(decoder)
        self.wrap_drafter(drafter, model)
        told = [f"model runner: {kind_of(self.runner)}", f"drafter: {kind_of(model)}"]
        if layers := getattr(decoder, "aux_hidden_state_layers", ()):
            told.append(f"layers the target passes on: {tuple(layers)}")
        self.folder.joinpath(f"attached.{self.name}.txt").write_text("\n".join(told), "utf-8")

    def hook_target(self, decoder: Any) -> None:
        layers = decoder.layers
        wanted = self.boundaries if self.boundaries is not None else range(len(layers) + 2)
        for j in wanted:
            if j == 0:
                layers[0].register_forward_pre_hook(self.on_input, with_kwargs=True)
            elif j <= len(layers):
                layers[j - 1].register_forward_hook(functools.partial(self.on_output, j))
            else:
                decoder.norm.register_forward_hook(functools.partial(self.on_norm, j))

    def wrap_drafter(self, drafter: Any, model: Any) -> None:
        propose, signature = drafter.propose, inspect.signature(drafter.propose)

        @functools.wraps(propose)
        def watched(*args: Any, **kwargs: Any) -> Any:
            named = signature.bind(*args, **kwargs).arguments
            if named.get("dummy_run") or self.step is None:
                return propose(*args, **kwargs)
            self.guarded(self.open, named)
            drafts = propose(*args, **kwargs)
            self.guarded(self.close)
            return drafts

        drafter.propose = watched
        model.register_forward_pre_hook(self.on_draft, with_kwargs=True)
        if combine := getattr(model, "combine_hidden_states", None):

            @functools.wraps(combine)
            def combined(states: Any) -> Any:
                fused = combine(states)
                if self.given is not None:
                    self.given |= {"served_aux": on_cpu(states), "served_fc": on_cpu(fused)}
                return fused

            model.combine_hidden_states = combined

    # In the order in which they are called

    def begin(self, step: Any) -> None:
        self.guarded(self.note, step)

    def note(self, step: Any) -> None:
        """A step that the scheduler asks for."""
        for new in step.scheduled_new_reqs:
            if new.prompt_token_ids is None:
                raise Unseen("a prompt was given as embeddings: it has no tokens")
            sampling = new.sampling_params
            self.requests[new.req_id] = len(new.prompt_token_ids), sampling and sampling.max_tokens
        for request in step.finished_req_ids:
            self.requests.pop(request, None)
        self.step = step if step.total_num_scheduled_tokens else None
        self.is_in_pass = self.step is not None
        self.states = {}

    def on_input(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The first layer is given the embedding alone."""
        given = [t for t in (*args, *kwargs.values()) if torch.is_tensor(t) and t.is_floating_point()]
        self.guarded(self.keep, 0, given[0])

    def on_output(self, boundary: int, module: Any, args: Any, output: Any) -> None:
        """What a layer adds is added up by the next; here at once, as the residual is changed in place."""
        parts = [output] if torch.is_tensor(output) else [part for part in output if part is not None]
        self.guarded(self.keep, boundary, *parts[:2])

    def on_norm(self, boundary: int, module: Any, args: Any, output: Any) -> None:
        self.guarded(self.keep, boundary, output if torch.is_tensor(output) else output[0])

    def keep(self, boundary: int, state: Any, residual: Any = None) -> None:
        if not self.is_in_pass:
            return
        rows = self.step.total_num_scheduled_tokens
        if boundary in self.states:
            raise Unseen("the target ran more than once in one step: micro-batches cannot be captured")
        if state.dim() != 2 or len(state) < rows:
            raise Unseen(f"boundary {boundary} has the shape {tuple(state.shape)} in a pass of {rows} tokens")
        whole = state if residual is None else state + residual
        self.states[boundary] = on_cpu(whole[:rows])

    def open(self, named: dict[str, Any]) -> None:
        """The drafter is asked for drafts."""
        self.rows = list(self.rows_of(named))
        self.given = {}

    def on_draft(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """The first of the drafter's passes; later ones have states of its own."""
        if self.given is not None and "served_ids" not in self.given:
            self.guarded(self.look, kwargs)

    def look(self, kwargs: dict[str, Any]) -> None:
        assert self.given is not None
        ids = kwargs["input_ids"]
        self.given["served_ids"] = None if ids is None else on_cpu(ids).long()
        if "served_aux" not in self.given:  # a drafter without a fusion layer
            self.given["served_aux"] = on_cpu(kwargs["hidden_states"])

    def close(self) -> None:
        given, self.given = self.given or {}, None
        for number, rows in enumerate(self.rows):
            self.write(number, rows, {name: t for name, t in given.items() if t is not None})

    def write(self, number: int, rows: Rows, given: dict[str, Any]) -> None:
        from safetensors.torch import save_file

        tensors = {f"b{b}": t[rows.in_target] for b, t in self.states.items()}
        tensors |= {name: t[rows.in_draft] for name, t in given.items()}
        tensors |= {"input_ids": rows.input_ids, "positions": rows.positions}
        prompt, most = self.requests[rows.request]
        told = {
            "request": rows.request,
            "prompt_tokens": str(prompt),
            "max_tokens": "" if most is None else str(most),
            "drafts": str(len(self.step.scheduled_spec_decode_tokens.get(rows.request, ()))),
            "next_id": str(rows.next_id),
        }
        name = f"{time.time_ns():020d}.{number}.{self.name}"
        unfinished = self.folder / f"{name}.part"
        save_file({n: t.contiguous() for n, t in tensors.items()}, unfinished, told)
        unfinished.rename(self.folder / f"{name}.safetensors")

    def rows_of(self, named: dict[str, Any]) -> Iterator[Rows]:
        """Rows of each request in what `propose` is called with."""
        batch = named.get("input_batch")  # of the newer runner
        if batch is None:
            requests, starts = self.runner.input_batch.req_ids, named["common_attn_metadata"].query_start_loc
            ids, positions = named["target_token_ids"], named["target_positions"]
            rejected, next_ids = named.get("num_rejected_tokens_gpu"), named["next_token_ids"]
        else:
            requests, starts = batch.req_ids, batch.query_start_loc
            ids, positions, rejected = batch.input_ids, batch.positions, named["num_rejected"]
            next_ids = next_ids_of(named)
        ids, positions = on_cpu(ids).long(), on_cpu(positions).long()
        if positions.dim() > 1:  # M-RoPE: text has three equal ones
            positions = positions[0]
        dropped = [0] * len(requests) if rejected is None else rejected.tolist()
        in_target = 0
        for i, (start, end) in enumerate(pairwise(starts[: len(requests) + 1].tolist())):
            kept = end - start - dropped[i]
            at = slice(start, start + kept)
            where = slice(in_target, in_target + kept), at
            yield Rows(requests[i], *where, ids[at], positions[at], int(next_ids[i]))
            in_target += self.step.num_scheduled_tokens[requests[i]]


def next_ids_of(named: dict[str, Any]) -> Any:
    """What the newer runner's drafter is given after each request's last row: sampled, or of the prompt."""
    slots = named["input_batch"].idx_mapping.long()
    sampled, prefilled = (named[name].flatten()[slots] for name in ("last_sampled", "next_prefill_tokens"))
    return torch.where(named["num_sampled"][: len(slots)] > 0, sampled, prefilled)


def decoder_of(model: Any) -> Any:
    """What has the layers and the final norm, also of a model of several modalities."""
    if hasattr(model, "get_language_model"):
        model = model.get_language_model()
    decoder = getattr(model, "model", model)
    if not (hasattr(decoder, "layers") and hasattr(decoder, "norm")):
        raise Unseen(f"{kind_of(model)} has no layers and norm where models of vLLM have them")
    return decoder


def on_cpu(tensor: Any) -> Any:
    """A copy: buffers are used again."""
    return tensor.detach().to("cpu", copy=True)


def kind_of(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
