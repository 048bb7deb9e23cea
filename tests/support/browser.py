"""A headless Chromium for tests, driven through the DevTools protocol's pipe: no library needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-pipe",
    "--window-size=1800,1300",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)

NO_BROWSER = "no Chromium: install the system's package chromium"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """The first Chromium on PATH."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page of a Chromium with a profile of its own. Use it in a `with`."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # Chromium reads descriptor 3 and writes 4; the shell puts the pipes there.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "-", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number, self._session = b"", 0, ""

    def __enter__(self) -> "Browser":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self._out)  # Chromium ends itself when its pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass  # an event
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _read(self, seconds: float = 60) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], seconds)[0]:
                raise TimeoutError("the browser does not answer")
            if not (part := os.read(self._in, 1 << 16)):
                raise RuntimeError("the browser ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, url: str) -> None:
        """Go to a page by way of an empty one; its scripts may still be at work."""
        for address in ("about:blank", url):
            self.call("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, or of its promise; RuntimeError where it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = 60) -> Any:
        """Poll an expression until it is true; one that throws counts as false.

        Fails with the text of the page.
        """
        deadline, last = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            try:
                if value := self.evaluate(script):
                    return value
            except RuntimeError as error:
                last = str(error)
            time.sleep(0.1)
        text = self.evaluate("document.body?.innerText")
        raise AssertionError(f"waited in vain for {script}\n{last}\nthe page says:\n{text}")

    def click(self, script: str) -> None:
        """Click the element that an expression finds, once it is there."""
        self.wait_for(f"(element => {{ element.click(); return true; }})({script})")

    def screenshot(self, file: Path) -> None:
        """The page as a PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
