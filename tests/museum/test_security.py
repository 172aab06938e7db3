"""The museum's room of security."""

from tests.museum.hanging import hang

test_exhibit = hang("security")
