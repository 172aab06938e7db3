"""Connections, routes and heartbeats, which all producers and consumers of one client share.

Enter at `instance`.
"""
