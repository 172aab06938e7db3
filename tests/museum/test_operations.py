"""The museum's room of operations."""

from tests.museum.hanging import hang

test_exhibit = hang("operations")
