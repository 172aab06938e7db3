"""What tests of the page share."""

from types import SimpleNamespace

import pytest

from tests.page import cluster


@pytest.fixture
def asking_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated time does not go on while somebody asks a server."""
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: 0.0))
