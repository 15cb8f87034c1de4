"""The images of a sweep as Places, each resolved once and then the same to the end of the run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from launchers.containers.command import DOCKER, docker_run_words
from launchers.containers.daemon import connect, tool_of
from launchers.containers.image import Image, Told, ensure_image, is_here, silent
from launchers.containers.launcher import DockerLauncher
from launchers.containers.leftovers import remove_forgotten
from launchers.containers.options import ContainerOptions
from launchers.launcher import Launch
from launchers.place import Place, Ran, Variables
from results.errors import UsageError

if TYPE_CHECKING:
    from docker import DockerClient


class Images:
    """The Places of a sweep whose servers run in containers: by image, None = the sweep's own.

    `reads` is what an engine must see while it is asked: model and draft. While `planning`, an image
    that is not here, or has no daemon, becomes an AbsentImage; otherwise it is pulled.
    """

    def __init__(
        self,
        options: ContainerOptions,
        reads: Sequence[Path] = (),
        told: Told = silent,
        *,
        planning: bool = False,
    ) -> None:
        self._options = options
        self._reads = reads
        self._told = told
        self._planning = planning
        self._place = cache(self._find)

    def __call__(self, image: str | None) -> Place:
        return self._place(image or self._options.image)

    @cached_property
    def _client(self) -> "DockerClient":
        client = connect()
        remove_forgotten(client)
        return client

    @cached_property
    def _tool(self) -> str:
        return tool_of(self._client)

    def _find(self, name: str) -> Place:
        if not self._planning:
            return self._image(name)
        try:
            if is_here(self._client, name, self._tool):
                return self._image(name)
            return AbsentImage(name, self._options.listens_on, "it is not on this machine")
        except UsageError as error:
            return AbsentImage(name, self._options.listens_on, str(error))

    def _image(self, name: str) -> Image:
        digest = ensure_image(self._client, name, self._told, self._tool)
        return Image(self._client, name, digest, self._options, self._reads, self._tool)

    def digests(self, images: Collection[str | None]) -> Mapping[str, str]:
        """Name -> digest."""
        names = sorted({image or self._options.image for image in images})
        return {name: self(name).identity for name in names}

    def launcher(self, run_dir: Path) -> DockerLauncher:
        """What starts servers from these images."""
        return DockerLauncher(run_dir, self._client, self._options, self._present, self._tool)

    def _present(self, image: str | None) -> Image:
        place = self(image)
        assert isinstance(place, Image), place.absent
        return place

    def run_words(self, launch: Launch) -> tuple[str, ...]:
        """The `docker run` command line of a server, with no secret in it."""
        place = self(launch.image)
        if not isinstance(place, Image):
            return docker_run_words(self._options, launch, DOCKER)
        shown = replace(launch, image=place.shown)
        return docker_run_words(self._options, shown, self._tool, place.variables)


class AbsentImage:
    """An image that cannot be asked, in a plan: every question goes without an answer."""

    identity = "absent"

    def __init__(self, name: str, host: str, why: str) -> None:
        self.name = f"the image {name}"
        self.host = host
        self.absent = f"{self.name} was not asked: {why}"

    def program(self, name: str) -> str:
        return name

    def run(self, argv: Sequence[str], env: Variables, timeout_s: float) -> Ran:
        return Ran(None, "", self.absent)

    def converse(self, argv: Sequence[str], env: Variables) -> "NoConversation":
        return NoConversation(self.absent)


class NoConversation:
    """A Conversation with nobody."""

    def __init__(self, why: str) -> None:
        self._why = why

    def ask(self, line: str, timeout_s: float) -> str:
        return ""

    def errors(self) -> str:
        return self._why

    def end(self) -> None:
        pass
