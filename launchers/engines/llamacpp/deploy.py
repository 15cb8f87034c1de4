"""llama.cpp, deployed."""

from launchers.engines.deploy import Argv, Deployment, ask_with_python, run_by_python, value_of

SERVER_IN_IMAGE = "/app/llama-server"  # where llama.cpp's own images have it, on no path
EMBEDDED = "launchers.embedded"


def models_of(argv: Argv) -> list[str]:
    """Model and draft model."""
    named = (value_of(argv, flag) for flag in ("--model", "--model-draft"))
    return [name for name in named if name is not None]


def in_image(argv: Argv) -> Argv:
    """The embedded server needs an image with tuner in it."""
    return run_by_python(argv) if EMBEDDED in argv else (SERVER_IN_IMAGE, *argv[1:])


def ask(url: str) -> Argv:
    """Images of llama.cpp have curl, those with the embedded server Python."""
    python, dash_c, script = ask_with_python(url)
    return ("sh", "-c", f'curl -fsS {url} || {python} {dash_c} "{script}"')


DEPLOYMENT = Deployment(8080, models_of, in_image=in_image, ask=ask)
