"""The `tuner` command line: each command is build, run, print, exit code. Only this file prints."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from results.errors import LaunchFailed, MeasurementInvalid, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from results.store import RunFolder
    from sweeps.observer import Observer
    from sweeps.prepare import Plan
    from sweeps.sides import Comparison

USAGE, INVALID, INTERRUPTED = 2, 5, 130

EXIT_CODES = (
    "Exit codes: 0 done (also when no configuration beats the baseline), 1 crash, 2 usage, 3 regression,"
    " 4 undecided or not enough history, 5 invalid measurement or broken infrastructure, 130 interrupted."
)

app = typer.Typer(
    name="tuner",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
    help="Find the speculative-decoding configuration that makes an LLM server faster than without it,"
    " and say so only when it is true.",
)

SweepFile = Annotated[Path, typer.Argument(help="The sweep file; `tuner init` writes one.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. budget.trials=20."),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, e.g. runs/first.")]


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("sweep.yaml"),
    command: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="COMMAND",
            help="Make it from the command that starts your SGLang, vLLM or llama-server today: the command"
            " in quotes, a file that holds it, or - for stdin. It is read, never run.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented sweep file to start from."""
    from importlib.resources import files

    if file.exists() and not force:
        raise UsageError(f"{file} exists: choose another name, or --force to overwrite it")
    notes: Sequence[str] = ()
    if command is None:
        text = (files("sweeps") / "starter.yaml").read_text()
    else:
        text, notes = _from_command(command, file)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    for note in notes:
        _say(f"- {note}")
    _say(f"Wrote {file}. Look at it, then: tuner sweep {file} --dry-run")


def _from_command(command: str, file: Path) -> tuple[str, Sequence[str]]:
    """The sweep file that a launch command describes, and what to know about it."""
    import os

    from sweeps.draft_file import sweep_file
    from sweeps.from_command import draft_sweep
    from sweeps.sweep import parse_sweep

    variables = {name: os.environ[name] for name in ("HOME", "USER", "PWD") if name in os.environ}
    draft = draft_sweep(_command_text(command), variables)
    text = sweep_file(draft, str(file))
    parse_sweep(text, where=str(file))
    return text, draft.notes


def _command_text(command: str) -> str:
    """The command itself, or what `-`, `@FILE` or the name of a file holds."""
    if command == "-":
        return sys.stdin.read()
    named = command.removeprefix("@")
    try:
        if command.startswith("@") or Path(named).is_file():
            return Path(named).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        if command.startswith("@"):
            raise UsageError(f"cannot read {named}: {getattr(error, 'strerror', None) or error}") from error
    return command  # also when it is far too long for the name of a file


@app.command()
def schema() -> None:
    """Print the JSON Schema of the sweep file, for editors."""
    import json

    from sweeps.sweep import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


@app.command()
def sweep(
    file: SweepFile,
    overrides: Overrides = None,
    run: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, start nothing.")
    ] = False,
) -> None:
    """Search for a configuration that beats the baseline, confirm it, write a report.

    The same command goes on with an interrupted run. Ctrl-C once ends after the Block in flight,
    twice ends now; nothing recorded is lost.
    """
    from results.store import RunFolder
    from sweeps.prepare import prepare
    from sweeps.sweep import load_sweep

    plan = prepare(load_sweep(file, overrides or ()), planning=dry_run, told=_tell)
    folder = RunFolder(run or Path("runs") / plan.sweep.name)
    if dry_run:
        _print(*_dry_run_lines(plan))
        return
    from sweeps.run import run_sweep

    with _stop_on_signal() as stopped, _progress() as observer:
        run_sweep(plan, folder, observer, stopped)
    code = _conclude(folder)
    raise typer.Exit(INTERRUPTED if stopped() else code)


@app.command()
def compare(
    sides: Annotated[
        list[str],
        typer.Argument(metavar="A [B]", help="Each the sweep file of one configuration, or a URL."),
    ],
    overrides: Overrides = None,
    like: Annotated[
        Path | None, typer.Option(help="Sweep file that gives the workload, where A and B are URLs.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder; default runs/compare-A-B.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, start nothing.")
    ] = False,
) -> None:
    """Measure configuration B against A, without a search, and say which is faster.

    Either may be the URL of a server that somebody else runs: it is measured, never started or ended.
    With A alone there are figures and no verdict. The same command goes on with an interrupted run.
    """
    from results.store import RunFolder
    from sweeps.sides import comparison

    compared = comparison(sides, overrides or (), like, planning=dry_run, told=_tell)
    folder = RunFolder(run or Path("runs") / compared.name)
    if dry_run:
        _print(*_dry_comparison_lines(compared))
        return
    from sweeps.compare import run_comparison

    with _stop_on_signal() as stopped, _progress() as observer:
        run_comparison(compared, folder, observer, stopped)
    code = _conclude(folder)
    raise typer.Exit(INTERRUPTED if stopped() else code)


def _conclude(folder: "RunFolder") -> int:
    """Print the verdict, write the report; the exit code of the run."""
    from analysis.report import html
    from analysis.terminal import verdict_lines
    from sweeps.outcome import read_run

    report, code = read_run(folder)
    _print(*verdict_lines(report))
    folder.write_text("report.html", html(report))
    _say(f"Report: {folder.report_file}")
    return code


@app.command()
def report(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", help="html, md, csv or json.")] = "html",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; - for the terminal.")
    ] = None,
) -> None:
    """Draw the report of a run, finished or not."""
    from analysis import report as reports
    from results.store import RunFolder
    from sweeps.outcome import read_run
    from sweeps.sweep import nearest

    forms: dict[str, Callable[..., str]] = {
        "html": reports.html,
        "md": reports.markdown,
        "csv": reports.csv,
        "json": reports.as_json,
    }
    if form not in forms:
        raise UsageError(f"--format {form}: no such form{nearest(form, [*forms])}")
    content, _ = read_run(RunFolder(run))
    text = forms[form](content)
    if output == Path("-") or (output is None and form != "html"):
        typer.echo(text)
        return
    target = output or run / "report.html"
    try:
        target.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    _say(f"Wrote {target}")


@app.command()
def reap(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of runs.")] = Path(
        "runs"
    ),
    end: Annotated[bool, typer.Option("--end", help="End them; without it they are only listed.")] = False,
) -> None:
    """List servers that a dead run left behind, and end them with --end.

    They are known by the process identity that the run recorded, never by name.
    """
    from launchers.leftovers import reap as reap_run

    if not run.is_dir():
        raise UsageError(f"{run} is no folder: name a run folder, or a folder of runs")
    files = [*run.glob("sweep.yaml"), *run.glob("*/sweep.yaml"), *run.glob("*/servers.jsonl")]
    folders = sorted({run, *(file.parent for file in files)})
    found = [(folder, leftover) for folder in folders for leftover in reap_run(folder, end=end)]
    for folder, leftover in found:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(leftover.since_at))
        known = f"pid {leftover.pid}, port {leftover.port}, since {began}"
        _say(f"{'ended' if end else 'found'} {leftover.what} ({known}) of {folder}")
    if not found:
        _say(f"No server was left behind by a run in {run}.")
    elif not end:
        _say("End them with --end.")


def _dry_run_lines(plan: "Plan") -> "Iterator[RenderableType]":
    from rich.syntax import Syntax
    from rich.text import Text

    from sweeps.forecast import forecast

    plan_of = forecast(plan)
    yield Syntax(plan.sweep.to_yaml(), "yaml", background_color="default")
    yield Text(f"{len(plan.space.points)} canonical points, {plan_of.trials} of them will be measured.")
    yield Text(plan_of.grid)
    if plan_of.baseline_trials:
        yield Text(
            f"Before them, {plan_of.baseline_trials} settings of a server without speculation, such as:"
        )
        yield Text("  " + plan_of.baseline_example)
    yield Text("Baseline:", style="bold")
    yield Text("  " + plan_of.baseline)
    yield Text("First trials:", style="bold")
    for command in plan_of.first_trials:
        yield Text("  " + command)
    yield Text(plan_of.time)
    yield Text(plan_of.sensitivity)
    yield from (Text(f"Note: {note}") for note in plan_of.notes)


def _dry_comparison_lines(compared: "Comparison") -> "Iterator[RenderableType]":
    from rich.syntax import Syntax
    from rich.text import Text

    from sweeps.forecast import command_of, comparison_time, sensitivity

    yield Syntax(compared.shared_yaml(), "yaml", background_color="default")
    for side in compared.sides:
        yield Text(f"{side.name}: {side.given}", style="bold")
        yield Text("  " + command_of(side.plan, side.point))
    yield from (Text(f"{name}: A {a}, B {b}") for name, a, b in compared.differences())
    yield Text(comparison_time([side.plan for side in compared.sides]))
    if compared.b is not None:
        yield Text(sensitivity(compared.a.plan))
    yield from (Text(f"Note: {note}") for note in (*compared.notes(), *compared.notes_of_sides()))
    yield from (Text(f"Not checked: {sentence}") for sentence in compared.unchecked())


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """First Ctrl-C: stop after the Block in flight. Second, or SIGTERM: stop now."""
    seen: list[int] = []

    def note(number: int, _frame: object) -> None:
        seen.append(number)
        if number == signal.SIGTERM or len(seen) > 1:
            raise KeyboardInterrupt
        _say("Stopping after the Block in flight; Ctrl-C again to stop now.", err=True)

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress() -> "Iterator[Observer]":
    """Live progress on a terminal, plain lines elsewhere."""
    from sweeps.progress import LiveProgress, PlainProgress

    if not sys.stderr.isatty():
        yield PlainProgress(lambda line: _say(line, err=True))
        return
    from rich.console import Console

    with LiveProgress(Console(stderr=True)) as live:
        yield live


def _print(*renderables: "RenderableType") -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    for renderable in renderables:
        console.print(renderable)


def _say(text: str, *, err: bool = False) -> None:
    typer.echo(text, err=err)


def _tell(line: str) -> None:
    _say(line, err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of the documented codes."""
    try:
        app(args=arguments)
    except UsageError as error:
        _end(USAGE, str(error))
    except (LaunchFailed, MeasurementInvalid) as error:
        _end(INVALID, f"{error}\nWhat was recorded is kept; the same command goes on.")
    except KeyboardInterrupt:
        _end(INTERRUPTED, "Stopped. What was recorded is kept; the same command goes on.")


def _end(code: int, message: str) -> None:
    _say(f"tuner: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
