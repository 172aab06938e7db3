"""The museum's room of clocks."""

from tests.museum.hanging import hang

test_exhibit = hang("clock")
