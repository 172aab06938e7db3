"""The client's settings, messages, errors and decisions, without I/O.

Enter at `messages` and `settings`; every other package of the client builds on this one.
"""
