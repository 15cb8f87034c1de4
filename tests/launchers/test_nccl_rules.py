"""Which combinations of NCCL's variables are excluded, by release, and no others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.nccl.grammar import ALGORITHMS, COLLECTIVES, PROTOCOLS
from launchers.nccl.rules import Version, leaves_nothing, unread, version_of

OLD, STRICT, BEFORE, NEW = (2, 21, 5), (2, 24, 3), (2, 30, 7), (2, 31, 2)


@pytest.mark.parametrize(
    ("env", "version", "told"),
    [
        # A collective without an implementation of the algorithm
        ({"NCCL_ALGO": "Tree"}, STRICT, "leaves AllGather .* write NCCL_ALGO=ring;allreduce:Tree"),
        ({"NCCL_ALGO": "Tree"}, None, "leaves AllGather"),
        ({"NCCL_ALGO": "NVLSTree"}, NEW, "leaves AllGather"),
        ({"NCCL_ALGO": "CollnetChain", "NCCL_COLLNET_ENABLE": "1"}, NEW, "leaves AllGather"),
        ({"NCCL_ALGO": "PAT"}, NEW, "leaves AllReduce .* leave NCCL_ALGO unset"),
        ({"NCCL_ALGO": "allreduce:pat"}, BEFORE, "leaves AllReduce"),
        ({"NCCL_ALGO": "^ring"}, NEW, None),  # NVLS may serve both
        ({"NCCL_ALGO": "^ring,nvls,pat"}, NEW, "leaves AllGather"),
        ({"NCCL_ALGO": "Ring"}, NEW, None),
        ({"NCCL_ALGO": "Tree"}, OLD, None),  # falls back to Ring
        # Since 2.31 what is not named is off, once something applies to all collectives
        ({"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}, BEFORE, None),
        (
            {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"},
            NEW,
            "since 2.31 .* write NCCL_ALGO=ring;allreduce:tree",
        ),
        ({"NCCL_ALGO": "allreduce:tree"}, NEW, None),  # nothing forces the others
        ({"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "allreduce:Simple"}, NEW, None),
        ({"NCCL_ALGO": "ring,tree;allreduce:tree", "NCCL_PROTO": "Simple"}, NEW, None),
        ({"NCCL_ALGO": "", "NCCL_PROTO": "Simple"}, NEW, None),
        ({"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "LL", "NCCL_SYM_KERNEL": "allgather:x"}, NEW, None),
        # Protocols
        ({"NCCL_ALGO": "NVLS", "NCCL_PROTO": "LL"}, NEW, "only Ring and Tree .* leave NCCL_PROTO unset"),
        ({"NCCL_ALGO": "NVLS", "NCCL_PROTO": "LL,Simple"}, NEW, None),
        ({"NCCL_ALGO": "NVLS,Ring", "NCCL_PROTO": "LL128"}, NEW, None),
        ({"NCCL_PROTO": "^LL,LL128,Simple"}, BEFORE, "no protocol is left"),
        # Other variables that take the algorithm away
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "0"}, NEW, "NCCL_NVLS_ENABLE=0 turns NVLS off"),
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "1"}, NEW, None),
        ({"NCCL_ALGO": "Ring,NVLS", "NCCL_NVLS_ENABLE": "0"}, NEW, None),
        ({"NCCL_ALGO": "CollnetDirect"}, NEW, "without NCCL_COLLNET_ENABLE=1"),
        ({"NCCL_ALGO": "CollnetDirect", "NCCL_COLLNET_ENABLE": "1"}, NEW, None),
        # Values
        ({"NCCL_ALGO": "rnig"}, STRICT, "'rnig' is no name that NCCL knows"),
        ({"NCCL_PROTO": "ring;tree"}, NEW, "fails at start"),
        ({"NCCL_ALGO": "Ring,nonsense"}, OLD, None),
        ({"NCCL_ALGO": "nonsense"}, OLD, "it knows none of these names"),
        ({"NCCL_ALGO": "allreduce:tree"}, OLD, "lists by collective came with 2.24"),
        ({"NCCL_NTHREADS": "100"}, NEW, "legal is an integer from 64 to 512, a multiple of 32"),
        ({"NCCL_NTHREADS": "1024"}, OLD, "NCCL_NTHREADS=1024 is replaced"),
        ({"NCCL_NTHREADS": "256", "NCCL_LL128_NTHREADS": "160"}, NEW, None),
        ({"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "16"}, NEW, "lowers it to 16"),
        ({"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "16"}, NEW, None),
        # NCCL takes the first 4 channels and copies them
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "4"}, NEW, None),
        # Networks
        ({"NCCL_NET": "IB", "NCCL_IB_DISABLE": "1"}, NEW, "leaves no network"),
        ({"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}, NEW, None),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}, NEW, None),  # sockets
        # `unset` is no value
        ({"NCCL_ALGO": "unset", "NCCL_PROTO": "Simple"}, NEW, None),
        ({"NCCL_ALGO": "Tree", "NCCL_PROTO": "unset"}, NEW, "NCCL_ALGO=Tree leaves"),
        ({}, None, None),
    ],
)
def test_what_is_excluded(env: dict[str, str], version: Version | None, told: str | None) -> None:
    found = leaves_nothing(env, version)
    if told is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(told, found), found
        assert any(name in found for name in env)


ALGO_LISTS = st.lists(st.sampled_from(ALGORITHMS), min_size=1, unique=True).map(",".join)
PROTO_LISTS = st.lists(st.sampled_from(PROTOCOLS), min_size=1, unique=True).map(",".join)


def by_collective(lists: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    entry = st.tuples(st.sampled_from(COLLECTIVES), lists).map(":".join)
    some = st.lists(entry, min_size=1, max_size=3).map(";".join)
    return st.one_of(lists, lists.map("^{}".format), some, st.tuples(lists, some).map(";".join))


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "NCCL_ALGO": by_collective(ALGO_LISTS),
        "NCCL_PROTO": by_collective(PROTO_LISTS),
        "NCCL_NVLS_ENABLE": st.sampled_from(["0", "1", "2", "unset"]),
    },
)
RELEASES = st.sampled_from([OLD, STRICT, BEFORE, NEW, None])


@given(VALUES, RELEASES)
def test_a_remedy_that_is_named_works(env: dict[str, str], version: Version | None) -> None:
    found = leaves_nothing(env, version)
    if found is None or version == OLD:
        return
    if " write NCCL_ALGO=" in found:
        env = {**env, "NCCL_ALGO": found.rsplit(" write NCCL_ALGO=", 1)[1]}
    elif found.endswith(" unset"):
        names = ("NCCL_ALGO", "NCCL_PROTO") if "both" in found else (found.split()[-2],)
        env = {name: value for name, value in env.items() if name not in names}
    assert leaves_nothing(env, version) is None


@given(VALUES, RELEASES)
def test_naming_every_algorithm_and_protocol_is_never_excluded(
    env: dict[str, str], version: Version | None
) -> None:
    every = {"NCCL_ALGO": ",".join(ALGORITHMS), "NCCL_PROTO": ",".join(PROTOCOLS)}
    assert leaves_nothing({**env, **every}, version) is None


def test_variables_that_nccl_never_reads() -> None:
    assert unread({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}).keys() == {"NCCL_P2P_LEVEL"}
    assert unread({"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "SYS"}) == {}
    assert unread({"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5"}).keys() == {"NCCL_IB_HCA"}
    assert unread({"NCCL_IB_DISABLE": "unset", "NCCL_IB_HCA": "mlx5"}) == {}
    assert unread({"NCCL_MAX_NRINGS": "4", "NCCL_MAX_NCHANNELS": "8"}).keys() == {"NCCL_MAX_NRINGS"}
    assert unread({"NCCL_MAX_NRINGS": "4", "NCCL_MIN_NCHANNELS": "8"}) == {}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.28.9+cuda13.0", (2, 28, 9)),
        ("2.31.2", (2, 31, 2)),
        ("2.31", (2, 31, 0)),
        ("2", None),
        ("2.x.1", None),
        ("", None),
        (None, None),
    ],
)
def test_versions_as_numbers(text: str | None, version: Version | None) -> None:
    assert version_of(text) == version
