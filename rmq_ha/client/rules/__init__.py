"""What a client is told, decides and says: settings, messages, errors, and choices without I/O.

Enter at `messages` and `settings`; every other room of the client stands on this one.
"""
