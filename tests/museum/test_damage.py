"""The museum's room of damage on the disk."""

from tests.museum.hanging import hang

test_exhibit = hang("damage")
