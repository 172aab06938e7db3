"""The museum's room of acknowledgements."""

from hanging import hang

test_exhibit = hang("acks")
