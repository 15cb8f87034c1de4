"""Counters from a Prometheus text page, by exact sample name."""

from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from launchers.engines.http import ask


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the page."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


def fetch_samples(url: str) -> list[Sample] | None:
    """Every sample of the page; None if the server does not offer it. Raises MeasurementInvalid."""
    answer = ask("GET", url)
    return samples(answer.text) if answer.ok else None


def samples(text: str) -> list[Sample]:
    """Raises ValueError if the text is not in the Prometheus format."""
    return [
        Sample(sample.name, sample.value, dict(sample.labels))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def total(page: list[Sample], name: str) -> int | None:
    """Sum over all labels of the samples with exactly this name; None if there is none."""
    values = [sample.value for sample in page if sample.name == name]
    return round(sum(values)) if values else None


def by_position(page: list[Sample], name: str, label: str = "position") -> tuple[int, ...]:
    """Sums per value of a numeric label, in order from 0; empty if there is no such sample."""
    sums: dict[int, float] = {}
    for sample in page:
        if sample.name == name and label in sample.labels:
            position = int(sample.labels[label])
            sums[position] = sums.get(position, 0) + sample.value
    return tuple(round(sums.get(i, 0)) for i in range(max(sums, default=-1) + 1))
