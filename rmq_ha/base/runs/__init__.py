"""
Runs: the functions of the hot paths that handle many messages at once, from bytes to bytes.

    a chunk of a connection --cut--> Sends --lay_out--> bytes for the log, and Rows
    bytes of the log --walk--> Rows
    Rows --units, index_put, answers, counts--> queues, index, answers, statistics

`face` declares these functions. `maker` chooses the module that has them: `pure` in Python, or the
package `rmq_ha_kernel` in Rust, which `pip install ./kernel` installs. Both give the same bytes.
Everybody else imports the functions from `maker` and cannot tell which maker works. Nothing here
does I/O, reads a clock, decides a policy or keeps state from one call to the next.

A message with anything unusual is left to its caller by both makers: see `face`.
"""
