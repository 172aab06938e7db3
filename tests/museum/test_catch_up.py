"""The museum's room of catch-up and divergence."""

from hanging import hang

test_exhibit = hang("catch_up")
