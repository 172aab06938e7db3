"""The museum's room of offsets, topics and groups."""

from tests.museum.hanging import hang

test_exhibit = hang("offsets")
