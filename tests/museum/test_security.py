"""The museum's room of security."""

from hanging import hang

test_exhibit = hang("security")
