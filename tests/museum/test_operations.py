"""The museum's room of operations."""

from hanging import hang

test_exhibit = hang("operations")
