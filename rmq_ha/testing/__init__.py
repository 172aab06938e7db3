"""Brokers for the tests of applications, real ones and on a simulated clock.

`pytest_plugin` has the fixtures: `rmqha_world` (a cluster on a simulated clock), `rmqha_broker` and
`rmqha_pair` (real processes). `host`, `clock`, `disk` and `network` are the simulated `Host`.
`playground` is a prompt on a simulated pair: `python -m rmq_ha.testing.playground`. docs/testing.md
names the public parts. The simulator that tests rmq-ha itself lies in `tests/sim_kit`.
"""
