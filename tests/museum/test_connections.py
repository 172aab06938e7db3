"""The museum's room of connections and restarts."""

from tests.museum.hanging import hang

test_exhibit = hang("connections")
