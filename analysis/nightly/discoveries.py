"""What stays of many small chances once one looks at all of them together."""

from collections.abc import Mapping


def discoveries(p_values: Mapping[str, float], rate: float) -> tuple[str, ...]:
    """The names left so that at most this share of what is found is false, in expectation.

    Benjamini and Hochberg 1995. Where nothing is wrong, anything at all is found with this probability.
    """
    from scipy.stats import false_discovery_control

    if not p_values:
        return ()
    adjusted = false_discovery_control(list(p_values.values()), method="bh")
    return tuple(name for name, p in zip(p_values, adjusted, strict=True) if p <= rate)
