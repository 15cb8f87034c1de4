"""Step 1: what the figures of a run mean, and whether there is a problem at all."""

from analysis.wiring.definition_findings import definition_findings, follows
from analysis.wiring.definition_lines import checked, count_lines, read_lines, shape_lines, text_lines
from analysis.wiring.observed import Observed
from results.wiring import Section, Step


def section(observed: Observed) -> Section:
    """The figures converted for this run's own k, judged against the expectation, and what distorts them."""
    if observed.counted is None and observed.drafted is None and not observed.texts.texts:
        needs = "the counters of a server, or the number of draft tokens, or some replies"
        return Section(Step.DEFINITIONS, skipped=f"needs {needs}")
    told = count_lines if observed.accuracy is not None else read_lines
    return Section(
        Step.DEFINITIONS,
        checked=tuple(checked(observed)),
        seen=(*shape_lines(observed), *told(observed), *text_lines(observed)),
        follows=tuple(follows(observed)),
        findings=tuple(definition_findings(observed)),
    )
