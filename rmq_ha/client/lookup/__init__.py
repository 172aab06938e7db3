"""Requests to brokers and name servers as generators without I/O.

Enter at `asking`. `rmq_ha.client.lookups` and `rmq_ha.client.groups` name the public functions.
"""
