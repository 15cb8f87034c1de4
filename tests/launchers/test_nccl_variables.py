"""NCCL's variables: legal values, and what is said of others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.nccl.grammar import (
    ALGORITHMS,
    COLLECTIVES,
    PROTOCOLS,
    Choice,
    Unreadable,
    parse,
    parse_before_2_24,
)
from launchers.nccl.variables import VARIABLES, check_value, nearest_name, unknown_note
from results.errors import UsageError
from results.records import UNSET


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_PROTO", "LL"),
        ("NCCL_PROTO", "simple"),
        ("NCCL_PROTO", "^LL128;allreduce:LL128"),
        ("NCCL_ALGO", "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring"),
        ("NCCL_ALGO", "NVLSTREE"),
        ("NCCL_NTHREADS", "96"),
        ("NCCL_BUFFSIZE", "0x400000"),
        ("NCCL_MIN_NCHANNELS", "16"),
        ("NCCL_P2P_LEVEL", "SYS"),
        ("NCCL_P2P_LEVEL", "3"),
        ("NCCL_NVLS_ENABLE", "2"),
        ("NCCL_SOCKET_IFNAME", "^docker"),
        ("NCCL_IB_GID_INDEX", "-1"),
        ("NCCL_TO_COME", "whatever"),
        ("NCCL_PROTO", UNSET),
    ],
)
def test_legal_values(name: str, value: str) -> None:
    check_value(name, value)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("NCCL_PROTO", "LL256", "did you mean LL128? legal is a list of LL, LL128, Simple"),
        ("NCCL_PROTO", "LL, Simple", "did you mean Simple?"),
        ("NCCL_ALGO", "allreduce:tre", "did you mean Tree?"),
        ("NCCL_ALGO", "ring;tree", "legal is a list"),
        ("NCCL_NTHREADS", "100", "legal is an integer from 64 to 512, a multiple of 32"),
        ("NCCL_NTHREADS", "1024", "an integer from 64 to 512"),
        ("NCCL_MIN_NCHANNELS", "many", "an integer from 1 to 64"),
        ("NCCL_MIN_NCHANNELS", "1_6", "an integer from 1 to 64"),
        ("NCCL_MIN_NCHANNELS", " 16", "an integer from 1 to 64"),
        ("NCCL_MIN_NCHANNELS", "\N{ARABIC-INDIC DIGIT THREE}", "an integer from 1 to 64"),
        ("NCCL_MAX_NCHANNELS", "0", "an integer from 1 to 64"),
        ("NCCL_BUFFSIZE", "4M", "an integer from 1"),
        ("NCCL_P2P_LEVEL", "nvl", "did you mean NVL? legal is LOC, NVL, PIX, PXB, PHB, SYS"),
        ("NCCL_P2P_DISABLE", "yes", "legal is 0, 1"),
        ("NCCL_PROTO", "", "written `unset`"),
        ("NCCL_TO_COME", "", "written `unset`"),
    ],
)
def test_others_are_refused_with_the_legal_ones(name: str, value: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_value(name, value)
    assert str(refused.value).startswith(name)
    assert told in str(refused.value)


def test_an_unknown_name_is_told_and_taken() -> None:
    assert nearest_name("NCCL_PROTOCOL") == "NCCL_PROTO"
    assert nearest_name("NCCL_PROTO") is None
    assert nearest_name("NCCL_QXZ_99") is None
    assert "did you mean NCCL_NVLS_ENABLE?" in (unknown_note("NCCL_NVLS_ENABLED") or "")
    assert "did you mean" not in (unknown_note("NCCL_QXZ_99") or "did you mean")
    assert unknown_note("NCCL_PROTO") is None
    assert unknown_note("OMP_NUM_THREADS") is None


def test_every_default_that_a_variable_names_is_legal() -> None:
    for name, variable in VARIABLES.items():
        assert name.startswith("NCCL_")
        assert variable.meaning
        for value in (*variable.choices, *variable.also, *variable.elements):
            check_value(name, value)


# The lists


ALL = frozenset(ALGORITHMS)


@pytest.mark.parametrize(
    ("value", "enabled", "forced"),
    [
        ("", {}, set()),
        ("ring,Tree", dict.fromkeys(COLLECTIVES, frozenset({"Ring", "Tree"})), set(COLLECTIVES)),
        ("^NVLS", dict.fromkeys(COLLECTIVES, ALL - {"NVLS"}), set(COLLECTIVES)),
        ("AllReduce:tree", {"AllReduce": frozenset({"Tree"})}, {"AllReduce"}),
        ("allreduce:^tree", {"AllReduce": ALL - {"Tree"}}, {"AllReduce"}),
        (
            "ring;allreduce:tree;",
            {**dict.fromkeys(COLLECTIVES, frozenset({"Ring"})), "AllReduce": frozenset({"Tree"})},
            set(COLLECTIVES),
        ),
        ("^", dict.fromkeys(COLLECTIVES, ALL), set()),
        ("allreduce:tree:ignored", {"AllReduce": frozenset({"Tree"})}, {"AllReduce"}),
    ],
)
def test_lists_are_read_as_nccl_reads_them(
    value: str, enabled: dict[str, frozenset[str]], forced: set[str]
) -> None:
    assert parse(value, ALGORITHMS) == Choice(enabled, frozenset(forced))


@pytest.mark.parametrize(
    "value",
    ["rnig", "ring, tree", "ring;tree", ";ring", "allreduce:", "reduceall:ring", ":", "allreduce;ring", "LL"],
)
def test_a_name_or_an_order_that_nccl_refuses(value: str) -> None:
    with pytest.raises(Unreadable):
        parse(value, ALGORITHMS)


def test_older_releases_pass_over_what_they_do_not_know() -> None:
    assert parse_before_2_24("Tree,nonsense", ALGORITHMS) == {"Tree"}
    assert parse_before_2_24("^tree", ALGORITHMS) == ALL - {"Tree"}
    assert parse_before_2_24("allreduce:tree", ALGORITHMS) == frozenset()


LISTS = st.lists(st.sampled_from(PROTOCOLS), min_size=1, unique=True)


@given(LISTS, st.booleans(), st.lists(st.tuples(st.sampled_from(COLLECTIVES), LISTS), max_size=3))
def test_what_is_written_is_what_is_read(
    first: list[str], negated: bool, by_collective: list[tuple[str, list[str]]]
) -> None:
    entries = [("^" if negated else "") + ",".join(first)]
    entries += [f"{collective}:{','.join(names)}" for collective, names in by_collective]
    for value in (";".join(entries), ";".join(entries).swapcase()):
        read = parse(value, PROTOCOLS)
        every = frozenset(PROTOCOLS)
        general = every - frozenset(first) if negated else frozenset(first)
        expected = {**dict.fromkeys(COLLECTIVES, general), **{c: frozenset(n) for c, n in by_collective}}
        assert read == Choice(expected, frozenset(COLLECTIVES))


@given(st.text(alphabet="LlSimple128^,;: \x00é", max_size=40))
def test_any_text_is_read_or_refused(value: str) -> None:
    assert parse_before_2_24(value, PROTOCOLS) <= frozenset(PROTOCOLS)
    try:
        read = parse(value, PROTOCOLS)
    except Unreadable:
        return
    assert read.forced <= read.enabled.keys() <= frozenset(COLLECTIVES)
