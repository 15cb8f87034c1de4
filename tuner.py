"""The `tuner` command line: each command is build, run, print, exit code. Only this file prints."""

import errno
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from results.errors import LaunchFailed, MeasurementInvalid, UsageError
from results.wiring import Step

if TYPE_CHECKING:
    from rich.console import RenderableType

    from analysis.nightly.judgement import Judgement
    from analysis.report_input import ReportInput
    from analysis.tables import Table
    from results.store import RunFolder
    from results.wiring import Fix
    from sweeps.doctor.patient import Patient
    from sweeps.doctor.verify import Verified
    from sweeps.nightly.pin import Pin
    from sweeps.observer import Observer
    from sweeps.prepare import Plan
    from sweeps.run import Afterwards
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


def _reads(
    kind: type[float] | type[int], low: float = -math.inf, high: float = math.inf
) -> Callable[[str], float]:
    """How an option reads its number, so that a mistake is explained in words of our own."""
    wanted = "a whole number" if kind is int else "a number"
    bounds = f" from {low:g} to {high:g}" if math.isfinite(low) else ""

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            raise typer.BadParameter(f"expected {wanted}{bounds}, not {str(text)[:60]!r}")
        return number

    return read


def _folder(text: str) -> Path:
    """A folder of this machine: what is captured there is far too large to be sent elsewhere."""
    from results.open_run import is_url

    if is_url(text):
        raise typer.BadParameter(f"expected a folder of this machine, not {text.partition(':')[0]}://...")
    return Path(text)


SweepFile = Annotated[Path, typer.Argument(help="The sweep file; `tuner init` writes one.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. budget.trials=20."),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, e.g. runs/first; or a URL.")]
RunOrSweep = Annotated[str, typer.Argument(metavar="RUN|SWEEP", help="A run, or its sweep file.")]
ItsRunFolder = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="With a sweep file: its run; default runs/NAME.")
]


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
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Run folder, default runs/NAME; or a URL: postgresql://HOST/DATABASE?run=NAME,"
            " s3://BUCKET/NAME ...",
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            help="Wall time for all of it, kept within one Block; the same as budget.hours.",
            parser=_reads(float),
            metavar="<float>",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, start nothing.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Afterwards trace baseline and winner, see `tuner profile`.")
    ] = False,
) -> None:
    """Search for a configuration that beats the baseline, confirm it, write a report.

    The same command goes on with an interrupted run. Ctrl-C once ends after the Block in flight,
    twice ends now; nothing recorded is lost.
    """
    from sweeps.prepare import prepare
    from sweeps.sweep import load_sweep

    limit = [f"budget.hours={hours}"] if hours is not None else []
    plan = prepare(load_sweep(file, [*(overrides or ()), *limit]), planning=dry_run, told=_tell)
    folder = _run_to_drive(run, Path("runs") / plan.sweep.name)
    afterwards = _profiling(plan, folder) if profile else None
    if dry_run:
        _print(*_dry_run_lines(plan))
        return
    from sweeps.forecast import sweep_time
    from sweeps.run import run_sweep

    if not folder.blocks():  # else what is left is known better, and said on the way
        _tell(sweep_time(plan))
    with _stop_on_signal() as stopped, _progress(folder) as observer:
        run_sweep(plan, folder, observer, stopped, afterwards)
    code = _conclude(folder)
    raise typer.Exit(INTERRUPTED if stopped() else code)


def _profiling(plan: "Plan", folder: "RunFolder") -> "Afterwards":
    """What `--profile` does after a sweep. Raises UsageError if this engine cannot be traced."""
    from functools import partial

    from sweeps.profile import Look, check_traceable, profile_best

    check_traceable(plan, folder)
    return partial(profile_best, plan, folder, look=Look())


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
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Run folder or URL; default runs/compare-A-B.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, start nothing.")
    ] = False,
) -> None:
    """Measure configuration B against A, without a search, and say which is faster.

    Either may be the URL of a server that somebody else runs: it is measured, never started or ended.
    With A alone there are figures and no verdict. The same command goes on with an interrupted run.
    """
    from sweeps.sides import comparison

    compared = comparison(sides, overrides or (), like, planning=dry_run, told=_tell)
    folder = _run_to_drive(run, Path("runs") / compared.name)
    if dry_run:
        _print(*_dry_comparison_lines(compared))
        return
    from sweeps.compare import run_comparison
    from sweeps.forecast import comparison_time

    if not folder.blocks():
        _tell(comparison_time([side.plan for side in compared.sides]))
    with _stop_on_signal() as stopped, _progress(folder) as observer:
        run_comparison(compared, folder, observer, stopped)
    code = _conclude(folder)
    raise typer.Exit(INTERRUPTED if stopped() else code)


@app.command()
def capacity(
    what: RunOrSweep,
    overrides: Overrides = None,
    run: ItsRunFolder = None,
    pace: Annotated[
        str, typer.Option(help="closed: requests in flight; poisson: requests per second.")
    ] = "closed",
    low: Annotated[
        float, typer.Option(help="Lowest load to try.", parser=_reads(float), metavar="<float>")
    ] = 1,
    high: Annotated[
        float, typer.Option(help="Highest load to try.", parser=_reads(float), metavar="<float>")
    ] = 64,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="In place of the sweep's limits, e.g. ttft_p95_s=0.5."),
    ] = None,
) -> None:
    """Find the highest load within the limits, for the baseline and the winner of a sweep.

    By doubling, then by bisection; each load on a fresh server. The same command goes on with an
    interrupted search.
    """
    from analysis.capacity import sentence
    from sweeps.capacity import capacity_points, run_capacity
    from sweeps.loads import question
    from sweeps.outcome import read_run

    plan, folder = _run_or_sweep(what, overrides, run)
    asked = question(pace, low, high, limit or (), plan.sweep)
    points = capacity_points(read_run(folder)[0])
    with _stop_on_signal() as stopped, _progress(folder) as observer:
        found = run_capacity(plan, folder, points, asked, observer, stopped)
    for one in found:
        _say(sentence(one))
    _draw(folder, read_run(folder)[0])
    raise typer.Exit(INTERRUPTED if stopped() else 0)


def _run_or_sweep(what: str, overrides: list[str] | None, run: str | None) -> "tuple[Plan, RunFolder]":
    """The plan of a run, or of a sweep file with its run."""
    from results.open_run import is_url, known_run
    from sweeps.outcome import sweep_of_run
    from sweeps.prepare import prepare
    from sweeps.sweep import load_sweep
    from sweeps.which_run import check_run

    if not is_url(what):
        check_run(Path(what), or_sweep=True)
        if not Path(what).is_dir():
            plan = prepare(load_sweep(Path(what), overrides or ()), told=_tell)
            return plan, _run_to_drive(run, Path("runs") / plan.sweep.name)
    folder = known_run(what)
    if overrides or run is not None:
        raise UsageError(f"--set and --run go with a sweep file, and {folder.shown} is a run folder")
    return prepare(sweep_of_run(folder), told=_tell), folder


def _run_to_drive(run: str | None, default: Path) -> "RunFolder":
    """The run that `--run` names; in a database it is called as the default would be."""
    from results.open_run import open_run

    return open_run(run or str(default), default.name)


def _known(run: str) -> "RunFolder":
    """A run to read."""
    from results.open_run import known_run

    return known_run(run)


@app.command()
def profile(
    what: RunOrSweep,
    overrides: Overrides = None,
    run: ItsRunFolder = None,
    point: Annotated[
        str, typer.Option(help="What to trace beside the baseline, e.g. 'EAGLE3 num_steps=3 topk=1'.")
    ] = "",
    cell: Annotated[str, typer.Option(help="The Cell to trace under, or its class; default the first.")] = "",
    seconds: Annotated[
        float,
        typer.Option(
            help="Longest time to trace, 0.1 to 3600.", parser=_reads(float, 0.1, 3600), metavar="<float>"
        ),
    ] = 10.0,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Trace the functions of Python too: larger and slower.")
    ] = False,
) -> None:
    """Trace the baseline and the best of a run for a moment: where the time of a step goes.

    The traces are kept for Perfetto. Nothing is measured meanwhile, and no verdict changes.
    """
    from analysis.terminal import profile_lines
    from sweeps.outcome import read_run
    from sweeps.profile import Look, profile_run

    plan, folder = _run_or_sweep(what, overrides, run)
    with _stop_on_signal() as stopped, _progress(folder) as observer:
        profile_run(plan, folder, observer, stopped, Look(seconds, stacks), point=point, cell=cell)
    report, _ = read_run(folder)
    _print(*profile_lines(report.profiles))
    _draw(folder, report)
    if stopped():
        raise typer.Exit(INTERRUPTED)


@app.command()
def doctor(
    file: Annotated[
        Path | None, typer.Argument(metavar="[SWEEP]", help="The sweep file that starts the server.")
    ] = None,
    overrides: Overrides = None,
    point: Annotated[
        str,
        typer.Option(
            help="What to examine, e.g. 'EAGLE3 num_steps=3 topk=1'; default the first of the space."
        ),
    ] = "",
    step: Annotated[
        list[Step] | None,
        typer.Option(metavar="STEP", help=f"One alone, or several: {', '.join(Step)}. Default all."),
    ] = None,
    expected: Annotated[
        float | None,
        typer.Option(
            help="What you expect: conditional accuracy (0.75) or tokens a round (3.2).",
            parser=_reads(float, 0),
            metavar="<float>",
        ),
    ] = None,
    dump: Annotated[
        Path | None, typer.Option(help="Hidden states captured before, by tuner or a trainer.")
    ] = None,
    sequences: Annotated[
        int, typer.Option(help="Prompts to capture.", parser=_reads(int, 1, 10_000), metavar="<int>")
    ] = 24,
    target: Annotated[
        str | None,
        typer.Option(help="Without a sweep file: the target's folder, or its Hugging Face name ..."),
    ] = None,
    draft: Annotated[str | None, typer.Option(help="... the drafter's ...")] = None,
    engine: Annotated[str, typer.Option(help="... sglang, vllm or llamacpp ...")] = "sglang",
    engine_version: Annotated[str, typer.Option(help="... its version ...")] = "",
    method: Annotated[
        str | None,
        typer.Option(help="... and the speculative method; default EAGLE-3, of llama.cpp none."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            help="Folder to keep what is captured in; default runs/doctor-NAME.",
            parser=_folder,
            metavar="FOLDER",
        ),
    ] = None,
    verify_fix: Annotated[
        bool,
        typer.Option("--verify-fix", help="Make the change in a fresh server, and measure what it does."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The diagnosis as JSON.")] = False,
) -> None:
    """Find out why a drafter's acceptance is low: look, capture, replay; name a cause only if it is certain.

    The server of a sweep file is started with a probe inside and ended again; yours is not touched.

    Two folders can be looked at without any engine: --target, --draft, --engine, --engine-version, --method.
    """
    from analysis.wiring.diagnosis_lines import diagnosis_lines
    from results.store import RunFolder
    from sweeps.doctor.asking import asked_of, exit_code, json_of, patient_of
    from sweeps.doctor.examination import examine
    from sweeps.doctor.verify import lines

    started_from = (engine, engine_version, method)
    patient = patient_of(file, overrides or (), point, (target, draft), started_from, _tell)
    asked = asked_of(patient, step or (), dump, expected, sequences)
    folder = RunFolder(run or Path("runs") / f"doctor-{patient.name}")
    diagnosis = examine(patient, folder, asked, _tell)
    if not as_json:
        _print(*diagnosis_lines(diagnosis))
    fix = diagnosis.conclusion.fix if diagnosis.conclusion is not None else None
    code, verified = exit_code(diagnosis), None
    if verify_fix and fix is None:
        _tell("There is no change to verify.")
    elif verify_fix and fix is not None:
        code, verified = _verify(patient, fix, folder)
    if as_json:
        _say(json_of(diagnosis, verified))
    elif verified is not None:
        if verified.folder is not None:
            _conclude(verified.folder)
        for line in lines(verified):
            _say(line)
    raise typer.Exit(code)


def _verify(patient: "Patient", fix: "Fix", folder: "RunFolder") -> "tuple[int, Verified]":
    """Measure the change: the exit code, 0 if more is accepted with it, and what was found."""
    from sweeps.doctor.verify import compared_in, exit_code, verify

    with _stop_on_signal() as stopped, _progress(compared_in(folder)) as observer:
        verified = verify(patient, fix, folder, observer, stopped)
    return INTERRUPTED if stopped() else exit_code(verified), verified


def _conclude(folder: "RunFolder") -> int:
    """Print the verdict, write the report; the exit code of the run."""
    from analysis.terminal import verdict_lines
    from sweeps.outcome import read_run

    report, code = read_run(folder)
    _print(*verdict_lines(report))
    _draw(folder, report)
    return code


def _draw(folder: "RunFolder", report: "ReportInput", *, err: bool = False) -> None:
    from analysis.report import html
    from sweeps.evidence import with_evidence

    folder.write_text("report.html", html(with_evidence(folder, report)))
    _say(f"Report: {folder.report_file}", err=err)


@app.command()
def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN [OTHER]", help="A run; or two, to set side by side."),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="In place of a run: the nights of tuner check, as a trend."),
    ] = None,
    pinned: Annotated[
        Path | None,
        typer.Option("--pin", metavar="FILE", help="With --history: of this pinned file, and its shifts."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="html, md, csv or json; of two runs no csv.")
    ] = "html",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; - for the terminal.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Draw the report of a run, finished or not; of two runs side by side; or the trend of a history."""
    from sweeps.mistakes import nearest

    if len(runs or ()) > 2:
        raise UsageError("one run folder, or two to set side by side")
    if bool(runs) == (history is not None):
        raise UsageError("name a run folder, or two, or --history DIR: one of them")
    if pinned is not None and history is None:
        raise UsageError("--pin goes with --history")
    forms, target = _trend_forms(history, pinned) if history is not None else _forms(runs or ())
    if form not in forms:
        raise UsageError(f"--format {form}: no such form{nearest(form, [*forms])}")
    text = forms[form]()
    if output == Path("-") or (output is None and form != "html"):
        typer.echo(text)
        return
    target = output or target
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    _say(f"Wrote {target}")
    if show:
        _open(target)


def _forms(runs: Sequence[str]) -> tuple[dict[str, Callable[[], str]], Path]:
    """What can be made of these runs, and where the page of it belongs."""
    from analysis import report as reports
    from analysis import two_runs_page
    from analysis.two_runs import TwoRuns

    folders = [_known(run) for run in runs]
    content = [_read(folder) for folder in folders]
    if len(content) == 1:
        made = {"html": reports.html, "md": reports.markdown, "csv": reports.csv, "json": reports.as_json}
        return {name: partial(make, content[0]) for name, make in made.items()}, folders[0].report_file
    two = TwoRuns(*content)
    both = {"html": two_runs_page.html, "md": two_runs_page.markdown, "json": two_runs_page.as_json}
    page = folders[1].path / f"beside-{folders[0].label}.html"
    return {name: partial(draw, two) for name, draw in both.items()}, page


def _trend_forms(where: str, pinned: Path | None) -> tuple[dict[str, Callable[[], str]], Path]:
    """What can be made of a history, or of one pin of it, and where the page of it belongs."""
    from analysis.nightly import trend
    from results.history import open_history
    from sweeps.nightly.accept import read_accepted
    from sweeps.nightly.pin import read_pin

    name = read_pin(pinned).name if pinned is not None else None
    shown = trend.Trend(open_history(where).nights(name), read_accepted(pinned) if pinned is not None else ())
    if not shown.nights:
        of = f" of {name}" if name is not None else ""
        raise UsageError(f"no night{of} in that history: `tuner check PINNED --history ...` records one")
    made = {"html": trend.html, "md": trend.markdown, "csv": trend.csv, "json": trend.as_json}
    return {form: partial(make, shown) for form, make in made.items()}, Path("trend.html")


def _read(folder: "RunFolder") -> "ReportInput":
    """A run with what a page shows of its raw records."""
    from sweeps.evidence import with_evidence
    from sweeps.outcome import read_run

    content, _ = read_run(folder)
    return with_evidence(folder, content)


def _open(page: Path) -> None:
    """Show a page to whoever sits here; without a browser its address must do."""
    import webbrowser

    address = page.resolve().as_uri()
    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        _say(f"No browser could be started: open {address}", err=True)


@app.command()
def export(
    run: RunArgument,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORM",
            help="command, env, compose, kubernetes or json; of SGLang also sglang-adaptive, of vLLM"
            " vllm-schedule.",
        ),
    ] = "command",
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; - for the terminal.")] = Path(
        "-"
    ),
    point: Annotated[
        str | None, typer.Option(help="Another measured configuration by its label, or a side: A, B.")
    ] = None,
    trial: Annotated[
        int | None,
        typer.Option(help="The same by the number of its trial.", parser=_reads(int), metavar="<int>"),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port; default the engine's usual one.", parser=_reads(int, 1, 65535), metavar="<int>"
        ),
    ] = None,
) -> None:
    """Print what a run found, ready to deploy: the winner, or the baseline if nothing beats it."""
    from sweeps.export.export import export as exported

    file = None if output == Path("-") else output
    found = exported(_known(run), form, point=point, trial=trial, host=host, port=port, file=file)
    if file is None:
        typer.echo(found.text, nl=False)
    else:
        _write(file, found.text)
    for note in found.notes:
        _tell(note)


def _write(file: Path, text: str, *, err: bool = False) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    _say(f"Wrote {file}", err=err)


def _append(file: Path, text: str) -> None:
    try:
        with file.open("a", encoding="utf-8") as open_file:
            open_file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error


@app.command()
def pin(
    run: RunArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("pinned.yaml"),
    point: Annotated[
        str | None, typer.Option(help="Another confirmed configuration by its label; default the winner.")
    ] = None,
    blocks: Annotated[
        int,
        typer.Option(
            help="Blocks to measure every night, 2 to 20.", parser=_reads(int, 2, 20), metavar="<int>"
        ),
    ] = 4,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Pin the winner of a run beside its baseline, for `tuner check` to measure every night."""
    from sweeps.nightly.pin import pin_of, pin_text

    if output.exists() and not force:
        raise UsageError(f"{output} exists: choose another name with -o, or --force to overwrite it")
    folder = _known(run)
    pinned = pin_of(folder, point, blocks)
    _write(output, pin_text(pinned, folder.shown))
    _say(f"Commit it. Tonight: tuner check {output} --history history")


@app.command()
def check(
    pinned: Annotated[
        Path, typer.Argument(metavar="PINNED", help="The pinned file; `tuner pin` writes one.")
    ],
    history: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL", help="Where the nights are kept: a folder, sqlite:// or postgresql://."
        ),
    ] = "history",
    machine: Annotated[
        str, typer.Option(help="Name of this machine in the history; default a hash of its host name.")
    ] = "",
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run folder or URL of this night; default runs/nightly/NAME-TIME."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append a summary in Markdown.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For other programs.")] = False,
    aa: Annotated[
        bool, typer.Option("--aa", help="Measure the baseline against itself: how often is the gate wrong?")
    ] = False,
    accept: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Measure nothing: accept the shift that the last nights show."),
    ] = None,
    series: Annotated[
        list[str] | None, typer.Option(help="With --accept: for this series alone; default what is in alarm.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --accept: when it began, e.g. 2026-11-30.")
    ] = None,
    candidate_image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="No night: measure this container image against the pinned one."),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="The same with a key of the pinned sweep changed, e.g. server=~/venvs/new/bin/python.",
        ),
    ] = None,
    bisect: Annotated[
        str | None,
        typer.Option(
            metavar="GOOD,...,BAD",
            help="No night: find the first bad one of these images, in order; or @FILE with one a line.",
        ),
    ] = None,
    bisect_key: Annotated[
        str, typer.Option(metavar="KEY", help="What the values of --bisect are, e.g. server; default images.")
    ] = "",
) -> None:
    """Measure a pinned configuration and say whether anything got worse since the last nights.

    Exits with 3 only for what fell below its bound twice in one night, with 4 while there are too few
    nights to compare with.
    """
    if candidate or candidate_image or bisect is not None:
        if accept is not None or aa or junit or summary:
            raise UsageError(
                "--accept, --aa, --junit and --summary are of a night, not of --candidate or --bisect"
            )
        code = _check_versions(pinned, candidate or (), candidate_image, bisect, bisect_key, run, as_json)
        raise typer.Exit(code)
    if accept is not None:
        _accept(pinned, history, accept, series or (), since)
        return
    if series or since:
        raise UsageError("--series and --since go with --accept REASON")
    _check_night(pinned, history, machine, run, junit, summary, as_json=as_json, aa=aa)


def _accept(pinned: Path, history: str, reason: str, series: Sequence[str], since: str | None) -> None:
    from results.history import open_history
    from sweeps.nightly.accept import accept, accepted_file
    from sweeps.nightly.pin import read_pin

    nights = open_history(history).nights(read_pin(pinned).name)
    for shift in accept(pinned, nights, reason, series, since):
        began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(shift.since_at))
        _say(f"Accepted for {shift.series} since {began} on {shift.machine}: {shift.reason}")
    _say(f"Commit {accepted_file(pinned)}: the nights since then are compared among themselves.")


def _check_night(
    pinned: Path,
    history: str,
    machine: str,
    run: str | None,
    junit: Path | None,
    summary: Path | None,
    *,
    as_json: bool,
    aa: bool,
) -> None:
    """One night: measured, recorded, shown."""
    from results.nights import NightKind
    from sweeps.nightly.check import EXIT_CODES, gate_of, run_night
    from sweeps.outcome import read_run

    gate = gate_of(pinned, history, machine, NightKind.AA if aa else NightKind.CHECK)
    named = time.strftime(f"{gate.pin.name}-%Y%m%dT%H%M%S")
    folder = _run_to_drive(run, Path("runs") / "nightly" / named)
    with _stop_on_signal() as stopped, _progress(folder) as observer:
        judged = run_night(gate, folder, observer, stopped)
    _show_night(judged, pinned, as_json=as_json, junit=junit, summary=summary)
    if not aa and folder.blocks():
        _draw(folder, read_run(folder)[0], err=as_json)
    raise typer.Exit(EXIT_CODES[judged.verdict])


def _show_night(
    judged: "Judgement", pinned: Path, *, as_json: bool, junit: Path | None, summary: Path | None
) -> None:
    import os
    import uuid

    from analysis.nightly import text
    from analysis.nightly.annotations import annotations, fence
    from analysis.nightly.junit import junit as as_junit

    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    before, after = fence(uuid.uuid4().hex) if on_github and not as_json else ("", "")
    _say_if(before)
    if as_json:
        typer.echo(text.as_json(judged))
    else:
        _print(*text.lines(judged))
    _say_if(after)
    for line in annotations(judged, str(pinned)) if on_github else ():
        _say(line, err=as_json)
    if junit is not None:
        _write(junit, as_junit(judged), err=as_json)
    if summary is not None:
        _append(summary, text.summary(judged))


def _check_versions(
    file: Path,
    changes: Sequence[str],
    image: str | None,
    versions: str | None,
    key: str,
    run: str | None,
    as_json: bool,
) -> int:
    """What is pinned on other versions, at once; the exit code."""
    from sweeps.nightly.pin import read_pin

    if versions is None:
        return _check_candidate(read_pin(file), changes, image, run, as_json=as_json)
    if changes or image:
        raise UsageError("--bisect names its versions itself: leave --candidate out")
    return _check_bisect(read_pin(file), versions, key, run, as_json=as_json)


def _check_candidate(
    pinned: "Pin", changes: Sequence[str], image: str | None, run: str | None, *, as_json: bool
) -> int:
    """Two versions in the same Blocks; the exit code says what became of the new one."""
    from analysis.nightly.contrast_table import contrast_table
    from sweeps.forecast import comparison_time
    from sweeps.nightly.candidate import EXIT_CODES, candidate, run_candidate
    from sweeps.nightly.version import image_change

    named = [image_change(pinned, image)] if image else []
    asked = candidate(pinned, [*named, *changes], _tell)
    folder = _run_to_drive(run, Path("runs") / asked.name)
    if not folder.blocks():
        _tell(comparison_time([asked.old.plan] * 2 + [asked.new.plan] * 2))
    with _stop_on_signal() as stopped, _progress(folder) as observer:
        judged = run_candidate(asked, folder, observer, stopped)
    _show_check(folder, contrast_table(judged.contrasts), judged.sentence, judged.notes, as_json=as_json)
    return INTERRUPTED if stopped() else EXIT_CODES[judged.state]


def _check_bisect(pinned: "Pin", versions: str, key: str, run: str | None, *, as_json: bool) -> int:
    """The first bad version of a list; 3 if there is one."""
    from analysis.nightly.bisection_words import versions_table
    from sweeps.nightly.bisect import bisection, listed, run_bisection
    from sweeps.nightly.candidate import EXIT_CODES
    from sweeps.outcome import CHECK_FILE

    asked = bisection(pinned, listed(versions), key, _tell)
    folder = _run_to_drive(run, Path("runs") / asked.name)
    with _stop_on_signal() as stopped, _progress(folder) as observer:
        found = run_bisection(asked, folder, observer, stopped, _tell)
    told = folder.read_json(CHECK_FILE)["sentence"]
    _show_check(folder, versions_table(found, asked.values), told, (), as_json=as_json)
    return INTERRUPTED if stopped() else EXIT_CODES[found.state]


def _show_check(
    folder: "RunFolder", table: "Table", sentence: str, notes: Sequence[str], *, as_json: bool
) -> None:
    from analysis.renderables import plain, section, text
    from sweeps.outcome import CHECK_FILE

    if as_json:
        typer.echo((folder.path / CHECK_FILE).read_text(encoding="utf-8"), nl=False)
        return
    _print(text(sentence, "bold"), *section(table.title, plain(table)))
    for note in notes:
        _say(f"Note: {note}")
    _say(f"Records: {folder.shown}")


def _say_if(line: str) -> None:
    if line:
        _say(line)


@app.command()
def status(
    run: RunArgument,
    as_json: Annotated[bool, typer.Option("--json", help="For other programs.")] = False,
) -> None:
    """Say where a run stands, from another terminal; it is not disturbed.

    Its state, what it measures now, the best so far, what failed, and what is left in time and GPU hours.
    """
    from sweeps.status import status_of
    from sweeps.status_text import status_json, status_lines

    found = status_of(_known(run))
    if as_json:
        typer.echo(status_json(found))
    else:
        _print(status_lines(found))


@app.command("list")
def list_runs(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER|URL", help="A folder of runs, or where others are kept.")
    ] = "runs",
    as_json: Annotated[bool, typer.Option("--json", help="For other programs.")] = False,
) -> None:
    """List the runs of a folder, newest first, with what came of them."""
    from sweeps.run_list import complaints, runs_in, runs_json, runs_table

    found = runs_in(folder)
    if as_json:
        typer.echo(runs_json(found))
    elif found:
        _print(runs_table(found))
        for line in complaints(found):
            _say(line)
    else:
        _say(f"No run in {folder}.")


@app.command()
def reap(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run folder, a folder of runs, or the URL of a run.")
    ] = "runs",
    end: Annotated[bool, typer.Option("--end", help="End them; without it they are only listed.")] = False,
) -> None:
    """List servers that a dead run left behind, and end them with --end.

    They are known by the process identity that the run recorded, never by name.
    """
    from launchers.leftovers import reap as reap_run
    from results.open_run import is_url, mirrors

    folders = mirrors(run) if is_url(run) else _run_folders(Path(run))
    found = [(folder, leftover) for folder in folders for leftover in reap_run(folder, end=end)]
    for folder, leftover in found:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(leftover.since_at))
        known = f"pid {leftover.pid}, port {leftover.port}, since {began}"
        _say(f"{'ended' if end else 'found'} {leftover.what} ({known}) of {folder}")
    if not found:
        _say(f"No server was left behind by a run in {run}.")
    elif not end:
        _say("End them with --end.")


def _run_folders(path: Path) -> list[Path]:
    """A run folder, or those in a folder of runs."""
    if not path.is_dir():
        raise UsageError(f"{path} is no folder: name a run folder, or a folder of runs")
    files = [*path.glob("sweep.yaml"), *path.glob("*/sweep.yaml"), *path.glob("*/servers.jsonl")]
    return sorted({path, *(file.parent for file in files)})


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
def _progress(folder: "RunFolder") -> "Iterator[Observer]":
    """Live progress on a terminal, plain lines elsewhere."""
    from sweeps.progress import LiveProgress, PlainProgress
    from sweeps.status import time_left_in

    if not sys.stderr.isatty():
        yield PlainProgress(_tell, lambda: time_left_in(folder))
        return
    from rich.console import Console

    with LiveProgress(Console(stderr=True), lambda: time_left_in(folder)) as live:
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
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.EACCES):
            raise
        _end(USAGE, f"cannot use {str(error.filename)[:200]}: {error.strerror}")
    except KeyboardInterrupt:
        _end(INTERRUPTED, "Stopped. What was recorded is kept; the same command goes on.")


def _end(code: int, message: str) -> None:
    _say(f"tuner: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
