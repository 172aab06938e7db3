"""Sending messages: with a reactor (`producer`), and without one (`send_asking`)."""
