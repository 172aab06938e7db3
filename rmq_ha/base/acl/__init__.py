"""Signatures of requests, and addresses: what clients and servers share of access control."""
