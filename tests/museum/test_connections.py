"""The museum's room of connections and restarts."""

from hanging import hang

test_exhibit = hang("connections")
