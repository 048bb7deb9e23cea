"""What the tests of live region share."""

from collections.abc import Iterator

import pytest
from rich.text import Text
from terminal import FakeTerminal, Screen

from orchestrator.pipeline import live_region
from orchestrator.pipeline.live_region import LiveRegion


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LiveRegion, Screen]]:
    """A region that is redrawn only when something is printed."""
    screen = Screen(80, 24)
    monkeypatch.setattr(live_region, "REDRAWS", 1 / 60)
    region = LiveRegion(FakeTerminal(screen), lambda *_: Text("one\ntwo"))
    region.start(refresh=True)
    yield region, screen
    region.stop()
