"""The museum's room of acknowledgements."""

from tests.museum.hanging import hang

test_exhibit = hang("acks")
