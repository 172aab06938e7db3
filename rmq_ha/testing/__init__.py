"""Brokers for tests, and the simulator that tests rmq-ha itself.

`pytest_plugin` has the fixtures for applications: `rmqha_world` (a cluster on a simulated clock),
`rmqha_broker` and `rmqha_pair` (real processes). `host`, `clock`, `disk` and `network` are the
simulated `Host`. `simulate` runs whole clusters from seeds: `python -m rmq_ha.testing.simulate`.
docs/testing.md names what is public.
"""
