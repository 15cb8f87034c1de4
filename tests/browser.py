"""A real headless Chromium, driven over its DevTools protocol: loads a page, acts on it, looks at it."""

import asyncio
import base64
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, Popen
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.missing import missing

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_PATIENCE_S = 60


def program() -> str | None:
    """The browser of this machine: `TUNER_CHROMIUM`, or the first that is on the PATH."""
    return os.environ.get("TUNER_CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)


def needed_browser() -> str:
    """The browser; without one the test is skipped, and fails where CI runs."""
    return program() or missing(
        f"no browser: none of {', '.join(PROGRAMS)} is on the PATH, and TUNER_CHROMIUM is not set"
    )


class Browser:
    """One tab of one browser. Everything it asked the network for and said on its console is kept."""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._loop = asyncio.new_event_loop()
        self._number = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []  # errors of scripts and of the console

    def __enter__(self) -> Self:
        self._profile = tempfile.mkdtemp(prefix="tuner-browser-")
        command = [self._executable, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = Popen(command, stdout=DEVNULL, stderr=DEVNULL)
        try:
            self._loop.run_until_complete(self._attach())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hasattr(self, "_session"):
            self._loop.run_until_complete(self._session.close())
        self._process.terminate()
        self._process.wait()
        self._loop.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, page: Path) -> None:
        """Load a file and wait until it is there."""
        self.requests.clear()
        self.complaints.clear()
        self.command("Page.navigate", url=page.as_uri())
        deadline = time.monotonic() + _PATIENCE_S
        while (
            self.run(f"document.readyState === 'complete' && location.href === {page.as_uri()!r}") is not True
        ):
            assert time.monotonic() < deadline, f"{page} was not loaded"

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """One key, as if typed: `Tab`, `Enter`, ` `."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        known: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        self.command("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **known)
        self.command("Input.dispatchKeyEvent", type="keyUp", **known)

    def click(self, selector: str) -> None:
        """A mouse click in the middle of an element."""
        self.run(
            f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
        )
        box = self.run(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        at: dict[str, Any] = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def looks(
        self, width: int, height: int = 900, *, dark: bool = False, media: str = "screen", still: bool = False
    ) -> None:
        """The window from now on, in CSS pixels, and what the reader prefers."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.command("Emulation.setEmulatedMedia", media=media, features=features)

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        answer = self.command("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.command("Page.printToPDF", printBackground=True)["data"])

    def command(self, method: str, **parameters: object) -> Mapping[str, Any]:
        """One command of the DevTools protocol and its answer; events on the way are kept."""
        return self._loop.run_until_complete(asyncio.wait_for(self._command(method, parameters), _PATIENCE_S))

    async def _command(self, method: str, parameters: Mapping[str, object]) -> Mapping[str, Any]:
        self._number += 1
        await self._tab.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._tab.receive_json()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])
            self._note(message)

    def _note(self, event: Mapping[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(told["entry"]["text"])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(told["args"]))

    async def _attach(self) -> None:
        self._session = aiohttp.ClientSession()
        port = await self._port()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            tabs = await answer.json()
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        self._tab = await self._session.ws_connect(address, max_msg_size=0)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._command(f"{domain}.enable", {})

    async def _port(self) -> int:
        """The browser writes down which port it took."""
        told, deadline = Path(self._profile) / "DevToolsActivePort", time.monotonic() + _PATIENCE_S
        while not told.exists() or not told.read_text().strip():
            assert self._process.poll() is None, f"{self._executable} ended with {self._process.returncode}"
            assert time.monotonic() < deadline, f"{self._executable} did not come up"
            await asyncio.sleep(0.05)
        return int(told.read_text().split()[0])
