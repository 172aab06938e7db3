"""What all producers and consumers of one client share: connections, routes, heartbeats.

Enter at `instance`.
"""
