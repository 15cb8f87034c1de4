"""SGLang, deployed; and its adaptive speculation, keyed by batch size.

Read from SGLang 0.5.23, `srt/speculative/adaptive_spec_params.py` and `srt/arg_groups/speculative_hook.py`:
a batch, padded to its CUDA graph, uses the entry of the largest key that is not above it (below the first
key, the first). An entry moves among its `candidate_steps` with the accepted length; with one candidate it
stays there, and hysteresis, smoothing and intervals act on nothing. 0 steps draft nothing. Keys that are no
number are no entries. `--speculative-num-steps` must be one of all candidates; buffers fit the largest.
"""

from collections.abc import Mapping, Sequence

from launchers.engines.deploy import Argv, Deployment, Size, value_of, with_flag
from launchers.engines.sglang.group import of_rank
from launchers.engines.sglang.knobs import FLAGS, METHODS
from results.errors import UsageError
from results.records import Point

MODEL_FLAGS = ("--model-path", "--speculative-draft-model-path")
OWN_LENGTHS = ("num_steps", "draft_tokens")
# What makes SGLang fall back to static steps with one line in its log.
OVERLAPS = ("--enable-multi-layer-eagle", "--enable-two-batch-overlap", "--enable-pdmux")
SWITCHES = (*OVERLAPS, "--enable-dp-attention")
ATTENTION_RANKS = "--attn-dp-size"


def models_of(argv: Argv) -> list[str]:
    """Model and drafter."""
    return [name for flag in MODEL_FLAGS if (name := value_of(argv, flag)) is not None]


def _dropped_with(argv: Argv) -> str | None:
    """The flag beside which SGLang goes on with static steps; both arms may be given one that is off."""
    on = [flag for flag in SWITCHES if flag in argv]
    if value_of(argv, ATTENTION_RANKS) not in (None, "1"):
        on.append(ATTENTION_RANKS)
    return on[0] if on else None


class Adaptive:
    """The file of --speculative-adaptive-config."""

    form = "sglang-adaptive"

    def entry_of(self, point: Point) -> tuple[Point, int] | None:
        method = METHODS.get(point.method)
        if method is None or not method.is_eagle or point.knobs.get("topk") != 1 or "adaptive" in point.knobs:
            return None
        rest = {knob: value for knob, value in point.knobs.items() if knob not in OWN_LENGTHS}
        return Point(point.method, rest), int(point.knobs["num_steps"])

    def why_not(self, method: str) -> str:
        eagle = [name for name, known in METHODS.items() if known.is_eagle]
        if method not in eagle:
            return f"adaptive speculation is for {', '.join(eagle)}, not for {method}: export it --as command"
        return (
            f"adaptive speculation needs chains, and no {method} with topk=1 (and without adaptive) was"
            f" measured: sweep `space: {{{method}: {{topk: 1, num_steps: [1, 2, 3, 5]}}}}`"
        )

    def config(self, sizes: Sequence[Size]) -> Mapping[str, object] | None:
        return {str(size.first): {"candidate_steps": [size.tokens]} for size in sizes}

    def command(self, argv: Argv, sizes: Sequence[Size], file: str) -> Argv:
        if dropped := _dropped_with(argv):
            raise UsageError(f"SGLang ignores adaptive speculation with {dropped}: export it --as command")
        steps = max(size.tokens for size in sizes)
        argv = with_flag(argv, FLAGS["num_steps"], str(steps))
        argv = with_flag(argv, FLAGS["draft_tokens"], str(steps + 1))
        return (*argv, FLAGS["adaptive"], FLAGS["adaptive_config"], file)


DEPLOYMENT = Deployment(30000, models_of, of_rank=of_rank, by_size=(Adaptive(),))
