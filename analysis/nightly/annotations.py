"""GitHub's annotations of a night: workflow commands, printed at the beginning of a line each."""

from analysis.nightly.figures import FAILED, failed, figure, name_of, sentence, worst_first
from analysis.nightly.headline import headline
from analysis.nightly.judgement import Judged, Judgement, State
from analysis.words import count, one_line
from results.nights import NightVerdict

MOST_ERRORS, MOST_WARNINGS = 5, 3  # GitHub shows ten of a kind per step; the worst few are read
MOST_SENTENCES = 4  # of the explanation; the summary has all of it


def annotations(judgement: Judgement, file: str) -> list[str]:
    """Errors by how far out they are, then warnings, then how many more there are. `file` is the pin."""
    errors = [_command("error", file, title, said) for title, said in _errors(judgement)]
    warnings = [
        _command("warning", file, name_of(j.series), one_line(j.warning))
        for j in worst_first(judgement.series)
        if j.warning and j.state not in FAILED
    ]
    shown = [*errors[:MOST_ERRORS], *warnings[:MOST_WARNINGS]]
    return [*shown, *_notices(judgement, file, len(errors) + len(warnings) - len(shown))]


def fence(token: str) -> tuple[str, str]:
    """What to print before and after text that may hold lines of a log: no command in it is obeyed.

    `token` must be a word that the text cannot know.
    """
    return f"::stop-commands::{token}", f"::{token}::"


def _errors(judgement: Judgement) -> list[tuple[str, str]]:
    """Title and message of each; the first brings the explanation along."""
    night, down = judgement.night, failed(judgement.series)
    found = [(headline(judgement), "")] if _of_the_night(judgement) else []
    found += [(name_of(j.series), _message(j)) for j in down]
    if not found:
        return []
    title, message = found[0]
    said = night.said[:MOST_SENTENCES]
    return [(title, " ".join(filter(None, [message, *said])) or title), *found[1:]]


def _of_the_night(judgement: Judgement) -> bool:
    """Whether the night itself is an error: no series says it."""
    night, down = judgement.night, failed(judgement.series)
    if judgement.verdict is NightVerdict.REGRESSION:
        return night.failure is not None or not down
    return judgement.verdict in (NightVerdict.INVALID, NightVerdict.CONFIG_DRIFT)


def _message(judged: Judged) -> str:
    now, expected, lowest = (figure(judged.series, v) for v in (judged.value, judged.expected, judged.lowest))
    if judged.state is State.LEAK:
        slowly = f"{now} tonight: lost slowly over the nights ({judged.nights} compared)."
        return f"{slowly} {sentence(one_line(judged.warning))}" if judged.warning else slowly
    again = f", {figure(judged.series, judged.again)} in the rerun" if judged.again is not None else ""
    return f"{now}{again}; expected {expected}, lowest {lowest} ({count(judged.nights, 'night')})."


def _notices(judgement: Judgement, file: str, more: int) -> list[str]:
    notices = [f"{count(more, 'more series', 'more series')} in the summary of this step"] if more else []
    waits = [headline(judgement)] if judgement.verdict is NightVerdict.INSUFFICIENT else []
    said = ". ".join([*waits, *notices])
    return [_command("notice", file, "Nightly gate", said)] if said else []


def _command(kind: str, file: str, title: str, message: str) -> str:
    return f"::{kind} file={_property(file)},title={_property(one_line(title))}::{_data(one_line(message))}"


def _data(text: str) -> str:
    """As GitHub's own toolkit escapes it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
