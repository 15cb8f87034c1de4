"""Why a Trial or a Block has no number. A new failure reason goes here, with its meaning."""

from enum import StrEnum


class Reason(StrEnum):
    """States of a Trial or Block that could not be measured; never turned into a number."""

    CONFIG_REJECTED = "CONFIG_REJECTED"  # the engine refused this combination of settings
    UNSUPPORTED_FLAG = "UNSUPPORTED_FLAG"  # this engine version has no such flag
    START_OOM = "START_OOM"  # not enough memory to start
    START_TIMEOUT = "START_TIMEOUT"  # not ready in the time allowed
    START_FAILED = "START_FAILED"  # the process ended before it was ready, cause not recognised
    NCCL_REJECTED = "NCCL_REJECTED"  # NCCL refused its environment
    CRASH_UNDER_LOAD = "CRASH_UNDER_LOAD"  # ended while serving, with a recognised crash
    SERVER_DIED = "SERVER_DIED"  # the connection was refused or cut and the process is gone
    HANG = "HANG"  # no token on any stream for the stall timeout
    WRONG_SERVER = "WRONG_SERVER"  # the port or the model belongs to another server
    IGNORED_SETTING = "IGNORED_SETTING"  # a requested setting is not in effect
    NOT_SPECULATING = "NOT_SPECULATING"  # speculation was asked for and nothing was drafted
    BROKEN_DRAFTER = "BROKEN_DRAFTER"  # drafts were made and (almost) none accepted on some slot
    INVALID_OUTPUT = "INVALID_OUTPUT"  # garbage, loops or empty answers the baseline does not give
    STREAM_UNPARSED = "STREAM_UNPARSED"  # tokens were counted but no text was seen, or no usage came
    SAMPLING_UNSUPPORTED = "SAMPLING_UNSUPPORTED"  # a sampling field is refused or ignored when speculating
    REQUESTS_FAILED = "REQUESTS_FAILED"  # at least one request ended in an error
    CAPACITY_LIMITED = "CAPACITY_LIMITED"  # the server could not admit the load
    CONCURRENCY_NOT_REACHED = "CONCURRENCY_NOT_REACHED"  # fewer requests in flight than asked for
    TOO_SHORT = "TOO_SHORT"  # the window is below its minimum
    CONFOUNDED = "CONFOUNDED"  # the arms differ in more than speculation
    HOST_PRESSURE = "HOST_PRESSURE"  # another load was on the machine during the window
    OTHER_LOAD = "OTHER_LOAD"  # somebody else's requests were in the server
    CLIENT_OVERHEAD = "CLIENT_OVERHEAD"  # the load client itself was the bottleneck
    THROTTLED = "THROTTLED"  # a GPU was slowed down by heat or by its power supply
    FOREIGN_PROCESS = "FOREIGN_PROCESS"  # a process of someone else was on a GPU of the server
    GPU_LOST = "GPU_LOST"  # a GPU fell away
    GPU_ERROR = "GPU_ERROR"  # the driver reported an error of the hardware
    CLUSTER_LOST = "CLUSTER_LOST"  # the head of the cluster does not answer any more
    ENERGY_UNKNOWN = "ENERGY_UNKNOWN"  # energy is the objective and was not told
    TRACE_UNUSABLE = "TRACE_UNUSABLE"  # the profiler wrote no trace, or one that says nothing
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"  # measured, but outside a limit of the sweep


# Faults of the machine or the moment, not of a Point: they teach the search nothing and are worth a rerun.
MACHINE_FAULTS = frozenset(
    {
        Reason.HOST_PRESSURE,
        Reason.OTHER_LOAD,
        Reason.CLIENT_OVERHEAD,
        Reason.CONCURRENCY_NOT_REACHED,
        Reason.TOO_SHORT,
        Reason.WRONG_SERVER,
        Reason.THROTTLED,
        Reason.FOREIGN_PROCESS,
        Reason.GPU_LOST,
        Reason.GPU_ERROR,
        Reason.CLUSTER_LOST,
        Reason.ENERGY_UNKNOWN,
    }
)
