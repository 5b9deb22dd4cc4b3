"""A browser for tests: Debian's Chromium without a window, driven through a pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0


class Chromium:
    """Speaks the DevTools protocol: JSON messages that end in a NUL, on descriptors 3 and 4."""

    def __init__(self, program: str, profile: Path):
        (hears, says), (heard, said) = os.pipe(), os.pipe()
        script = f'exec "$0" "$@" 3<&{hears} 4>&{said}'
        flags = (*FLAGS, f"--user-data-dir={profile}", "about:blank")
        self.process = subprocess.Popen(
            ["bash", "-c", script, program, *flags],
            pass_fds=(hears, said), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(hears)
        os.close(said)
        self.says, self.heard, self.rest, self.last = says, heard, b"", 0
        self.events: list[dict[str, Any]] = []
        self.session: dict[str, str] = {}

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        os.close(self.says)
        os.close(self.heard)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self.last += 1
        message = {"id": self.last, "method": method, "params": params, **self.session}
        os.write(self.says, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.last:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def wait(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def wait_for_log(self) -> dict[str, Any]:
        self.wait("Log.entryAdded")
        return next(event for event in self.events if event["method"] == "Log.entryAdded")

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.heard], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self.heard, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("the browser does not answer")
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page in a new tab; what it did on the way is in `events`."""
        self.session, self.events = {}, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        found = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = {"sessionId": found["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events = []
        self.send("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, name: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        same = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.send(
            "Input.dispatchKeyEvent", type="keyDown", **same, **({"text": text} if text else {})
        )
        self.send("Input.dispatchKeyEvent", type="keyUp", **same)

    def screenshot(self, file: Path, whole: bool = False) -> None:
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True)["data"])


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium")
    browser = Chromium(program, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()
