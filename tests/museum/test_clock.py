"""The museum's room of clocks."""

from hanging import hang

test_exhibit = hang("clock")
