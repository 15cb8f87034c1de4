"""Rules of vLLM that depend on the model, the drafter, the other arguments or the version."""

import re
from collections.abc import Iterator, Mapping

from launchers.engines.vllm import schedule
from launchers.engines.vllm.flags import Capabilities
from launchers.engines.vllm.knobs import METHODS
from launchers.engines.vllm.models import Models
from results.errors import UsageError
from results.records import KnobValue, Point

READ = ("0.32", "0.33")  # the releases whose sources the rules were taken from
KEY_OF = {
    "tokens_per_batch_size": "num_speculative_tokens_per_batch_size"
}  # where the knob is named otherwise
# From 0.11.1 until before 0.32 the capture sizes had to fit K+1 and the ranks of sequence parallelism.
CAPTURE_RULE = ((0, 11, 1), (0, 32))
SEQUENCE_PARALLEL = (
    "--compilation-config.pass_config.enable_sp",
    "--compilation-config.pass_config.enable_sequence_parallelism",
)
Settings = Mapping[str, KnobValue]


def version_of(text: str) -> tuple[int, ...]:
    """(0, 32, 0) of `0.32.0+cpu` or `0.32.0rc1`."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def notes(version: str) -> tuple[str, ...]:
    """Which release's rules stand in for those of a version that was not read."""
    release = ".".join(map(str, version_of(version)[:2]))
    if release in READ:
        return ()
    nearest = min(READ, key=lambda known: abs(_minor(known) - _minor(release)))
    return (f"the rules between speculative settings are those of vLLM {nearest}, not of {version}",)


def _minor(release: str) -> int:
    major, minor = (*version_of(release), 0, 0)[:2]
    return 1000 * major + minor


def open_methods(models: Models, known: Capabilities) -> list[str]:
    """Methods that this installation has and that this model and drafter allow."""
    return [name for name in METHODS if _closed(name, models, known) is None]


def _closed(name: str, models: Models, known: Capabilities) -> str | None:
    """Why a method cannot be used here, and what to do."""
    method = METHODS[name]
    if name == "none":
        return None
    if known.methods and name not in known.methods:
        return f"vLLM {known.version} has no method {name}"
    if name == "suffix" and not known.has_arctic_inference:
        return "suffix needs the package arctic-inference beside vLLM"
    if (name == "mtp" and models.unseen) or (method.needs_draft and "draft" in models.unseen):
        return None
    if name == "mtp" and models.mtp_tokens is None and models.draft_method != "mtp":
        return "mtp needs a model with multi-token-prediction layers, and this one's config names none"
    if method.needs_draft and models.draft_method != name:
        made_for = (
            f"the one named is made for {models.draft_method}" if models.draft_method else "none is named"
        )
        return f"{name} needs a draft model of its kind: {made_for}"
    return None


def check(point: Point, settings: Settings, models: Models, known: Capabilities) -> None:
    """Raise UsageError with the rule and what is legal if vLLM would refuse, ignore or die of the Point."""
    if point.is_baseline:
        return
    for broken in _broken(point, settings, models, known):
        raise UsageError(f"{point.label}: {broken}")


def _broken(point: Point, settings: Settings, models: Models, known: Capabilities) -> Iterator[str]:
    if closed := _closed(point.method, models, known):
        yield closed
    yield from _unknown_keys(point, known)
    tokens = int(point.knobs["num_speculative_tokens"])
    yield from draft_length(point.method, tokens, models)
    yield from _schedule(point, settings)
    yield from _capture_sizes(tokens, settings, version_of(known.version))
    if settings.get("--async-scheduling") is True and not METHODS[point.method].async_scheduling:
        yield f"vLLM refuses --async-scheduling with {point.method}: leave it out, or set it to false"
    yield from _lora(tokens, settings)


def _unknown_keys(point: Point, known: Capabilities) -> Iterator[str]:
    for knob, value in point.speculative.items():
        if KEY_OF.get(knob, knob) not in known.speculative_keys:
            yield f"vLLM {known.version} has no {KEY_OF.get(knob, knob)} in its speculative config"
        choices = {
            "rejection_sample_method": known.rejection_sample_methods,
            "draft_sample_method": known.draft_sample_methods,
        }.get(knob)
        if choices and value not in choices:
            yield f"vLLM {known.version} knows {knob} {', '.join(choices)}"


def draft_length(method: str, tokens: int, models: Models) -> Iterator[str]:
    """A model's MTP layers are run as a whole; Medusa has one head per token."""
    if method == "medusa" and models.medusa_heads is not None and tokens > models.medusa_heads:
        most = models.medusa_heads
        yield f"num_speculative_tokens <= {most}, the heads it has: lower it to {most}"
    layers = models.draft_mtp_tokens if models.draft_method == "mtp" else models.mtp_tokens
    if method == "mtp" and layers is not None and tokens > layers and tokens % layers:
        below, above = tokens - tokens % layers, tokens - tokens % layers + layers
        yield (
            f"num_speculative_tokens above {layers} must be a multiple of it "
            f"(the model predicts {layers} tokens per pass): nearest are {below} and {above}"
        )


def _schedule(point: Point, settings: Settings) -> Iterator[str]:
    if "tokens_per_batch_size" not in point.knobs:
        return
    ranks = settings.get("--data-parallel-size", 1)
    if isinstance(ranks, int) and ranks > 1:
        yield "vLLM ignores tokens_per_batch_size with data parallelism: leave it out"
    if (
        settings.get("--max-num-seqs") == 1
        and len(schedule.parse(str(point.knobs["tokens_per_batch_size"]))) > 1
    ):
        yield "tokens_per_batch_size has no effect with --max-num-seqs 1: leave it out"


def _capture_sizes(tokens: int, settings: Settings, version: tuple[int, ...]) -> Iterator[str]:
    first, fixed = CAPTURE_RULE
    ranks = settings.get("--tensor-parallel-size", 1)
    parallel = any(settings.get(name) in (True, "true", "True") for name in SEQUENCE_PARALLEL)
    if not first <= version < fixed or not parallel or not isinstance(ranks, int) or ranks <= 1:
        return
    legal = [k for k in range(1, 4 * ranks) if _sizes_fit(k, ranks)]
    if tokens not in legal and not _sizes_fit(tokens, ranks):
        near = sorted(sorted(legal, key=lambda k: abs(k - tokens))[:2])
        yield (
            f"with sequence parallelism over {ranks} ranks, num_speculative_tokens + 1 and {ranks} "
            f"must divide the larger of the two: nearest are {' and '.join(map(str, near))}"
        )


def _sizes_fit(tokens: int, ranks: int) -> bool:
    larger = max(tokens + 1, ranks)
    return larger % (tokens + 1) == 0 and larger % ranks == 0


def _lora(tokens: int, settings: Settings) -> Iterator[str]:
    if settings.get("--enable-lora") is not True:
        return
    sequences, batch = settings.get("--max-num-seqs"), settings.get("--max-num-batched-tokens")
    if isinstance(sequences, int) and isinstance(batch, int) and batch < sequences * (tokens + 1):
        yield (
            "with LoRA, max-num-batched-tokens must be at least max-num-seqs x (num_speculative_tokens + 1): "
            f"raise it from {batch} to {sequences * (tokens + 1)}, or lower num_speculative_tokens "
            f"to {max(batch // sequences - 1, 0)}"
        )
