"""The museum's room of offsets, topics and groups."""

from hanging import hang

test_exhibit = hang("offsets")
