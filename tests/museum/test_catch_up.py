"""The museum's room of catch-up and divergence."""

from tests.museum.hanging import hang

test_exhibit = hang("catch_up")
