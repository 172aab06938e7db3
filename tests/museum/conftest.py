"""What the museum's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.museum.exhibit import Exhibit, Fact
from tests.museum.gallery import provoke

AT_A_TIME = 2
"""Most of their time they wait; more at a time would measure the machine."""


@pytest.fixture(scope="module")
def facts(
    request: pytest.FixtureRequest, quick_java: None
) -> Iterator[Callable[[Exhibit, bool], Fact]]:
    """What is seen of an exhibit; those of a room are provoked side by side."""
    here = [item for item in request.session.items if item.path == request.path]
    wanted = [item.callspec.params for item in here if isinstance(item, pytest.Function)]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        begun: dict[tuple[str, bool], Future[Fact]] = {
            (one["exhibit"].name, one["java"]): pool.submit(provoke, one["exhibit"], one["java"])
            for one in wanted
        }
        yield lambda exhibit, java: begun[exhibit.name, java].result()
        pool.shutdown(cancel_futures=True)
