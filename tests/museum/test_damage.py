"""The museum's room of damage on the disk."""

from hanging import hang

test_exhibit = hang("damage")
