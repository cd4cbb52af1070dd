"""A headless Chromium for the tests of pages: its DevTools protocol through a pair of pipes, no package needed."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
_TIMEOUT = 180.0  # seconds to wait for anything, on a loaded machine


class Browser:
    """One page of a browser.

    Args:
        reads: file descriptor of what it says.
        writes: file descriptor of what it is told.
    """

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._number, self._left, self._session = 0, b"", None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._note(answer)

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page and wait for it."""
        self.resize(width, height, dark)
        self.call("Page.navigate", url=page.as_uri())
        self.wait("document.readyState === 'complete'")

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window in CSS pixels, and which theme the system prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + _TIMEOUT
        while not self.run(condition):
            assert time.monotonic() < end, f"waited in vain for {condition}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """A key, pressed and released, for what has the focus."""
        codes = {"Enter": 13, "Tab": 9, " ": 32}
        named = {
            "key": key,
            "windowsVirtualKeyCode": codes[key],
            "text": {"Enter": "\r", " ": " "}.get(key, ""),
        }
        self.call("Input.dispatchKeyEvent", type="keyDown", **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._reads], [], [], _TIMEOUT)
            assert ready, "the browser says nothing"
            chunk = os.read(self._reads, 1 << 20)
            assert chunk, "the browser ended"
            self._left += chunk
        message, _, self._left = self._left.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        """Keep errors, warnings and what was asked of the network."""
        method, found = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(found["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning"):
            self.complaints.append(
                str([argument.get("value", argument) for argument in found["args"]])
            )
        elif method == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.complaints.append(found["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, with an empty profile, ended at the end."""
    assert CHROMIUM, "no Chromium here"
    to_it, from_it = os.pipe(), os.pipe()
    # It reads commands from descriptor 3 and answers on 4.
    shell = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]
        options += ["--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", str(to_it[0]), str(from_it[1]), CHROMIUM, *options],
            pass_fds=(to_it[0], from_it[1]),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it[0])
        os.close(from_it[1])
        try:
            yield Browser(from_it[0], to_it[1])
        finally:
            process.kill()
            process.wait(timeout=30)
            os.close(to_it[1])
            os.close(from_it[0])
