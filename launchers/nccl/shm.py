"""Whether /dev/shm is large enough for NCCL, judged before anything is started."""

MIB = 1024 * 1024
# NCCL asks for one segment for each connection through shared memory, at the receiver: the buffers of LL
# (512 KiB), LL128 (4800 KiB) and Simple (NCCL_BUFFSIZE, 4 MiB) and 4 KiB of control: the "(size 9637888)"
# of its messages.
SEGMENT_BYTES = 524_288 + 4_915_200 + 4_194_304 + 4096
# The fewest that a rank opens where no GPU reaches another directly: two channels, each in a ring and a tree.
SEGMENTS_PER_RANK = 2 * 2
SUGGESTED = "16g"


def too_small(shm_bytes: int | None, ranks: int) -> str | None:
    """What to set, if ranks of one host cannot all talk through a /dev/shm of this size.

    None if it may suffice, if its size is unknown, or for a single rank.
    """
    if shm_bytes is None or ranks <= 1:
        return None
    needed = ranks * SEGMENTS_PER_RANK * SEGMENT_BYTES
    if shm_bytes >= needed:
        return None
    return (
        f"SHM_TOO_SMALL {_mib(shm_bytes)} of /dev/shm for {ranks} ranks, where NCCL asks for {_mib(needed)} "
        f"or more: set `shm_size: {SUGGESTED}` or `ipc: host`. NCCL_SHM_DISABLE=1 would measure another "
        "transport"
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.0f} MiB"
