"""The real `Host`: clock, network, disk, worker thread and random numbers of this machine.

No other package imports the reactor, reads a clock, opens a file, starts a thread or draws a random
number; `tests/test_house.py` checks it. `real.make_host` makes a host. `rmq_ha.testing` has the
simulated host, and `tests/contract` runs the same rules over both.

Time is of two kinds. `clock` and `steady_ms` measure durations, and nobody can set them. `now_ms`
is wall time: it is stored, sent, shown, or compared with a stamp of the same kind. The difference
of two values of `now_ms` is no duration.

Files are written with `pwrite` and read with `pread`, not through maps. A full disk is then an
`OSError` and not a SIGBUS. `sync` blocks, so it always runs in the `Worker`.
"""
