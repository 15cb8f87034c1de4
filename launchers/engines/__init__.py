"""One module per engine: its knobs, rules, flags, read-back, counters and failure signs."""

from pathlib import Path

from launchers.engines.engine import Engine
from launchers.launcher import Launcher
from launchers.place import Places, on_this_machine


def engine_named(name: str, server: str, places: Places = on_this_machine) -> Engine:
    """The engine a sweep file names. A new engine is added here and in `sweeps.sweep.Sweep.engine`.

    `server` is what the engine is started from; "" = the engine's own default. `places` says where.
    """
    match name:
        case "fake":
            from launchers.fake import FakeEngine

            return FakeEngine()
        case "sglang":
            from launchers.engines.sglang.engine import Sglang

            return Sglang(server, places)
        case "vllm":
            from launchers.engines.vllm.engine import Vllm

            return Vllm(server, places=places)
        case _:
            from launchers.engines.llamacpp.engine import EMBEDDED, LlamaCpp

            return LlamaCpp(server or EMBEDDED, places)


def launcher_for(engine: Engine, run_dir: Path) -> Launcher:
    """What starts this engine's servers."""
    from launchers.engines.attached import Attached

    if isinstance(engine, Attached):
        from launchers.attach import AttachLauncher

        return AttachLauncher()
    if engine.name == "fake":
        from launchers.fake import FakeEngine, FakeLauncher

        assert isinstance(engine, FakeEngine)
        return FakeLauncher(engine)
    from launchers.process import ProcessLauncher

    return ProcessLauncher(run_dir)
