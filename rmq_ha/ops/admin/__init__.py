"""
`rmqha-admin`: the commands for people and scripts.

`main` lists the commands; each command is a module of this package. `options` has the options that
all commands share (name servers, accounts, TLS, `--json`), and `output` is the only way to print.
`doctor/` gathers facts and judges them by rules. Exit codes: 0 done, 1 refused, failed or not as it
should be, 2 wrong usage, 3 nothing found, 4 a server does not answer.
"""
