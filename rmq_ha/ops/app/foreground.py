"""`rmqha-broker`, `rmqha-namesrv` and `rmqha-controller`: they only run twistd in the foreground.

The options are those of `twistd rmqha`. The service manager sets the user, the log files and the
limits of the process.
"""

import sys
from typing import NoReturn

from rmq_ha.ops.app.build import build_text


def run_foreground(program: str, arguments: list[str]) -> NoReturn:
    """
    Run a server of rmq-ha until it ends.

    :param program: the server's name in twistd.
    """
    if arguments in (["--version"], ["-V"]):
        print(build_text())
        raise SystemExit(0)
    from twisted.scripts.twistd import run

    sys.argv = [sys.argv[0], "--nodaemon", "--pidfile=", program, *arguments]
    run()  # type: ignore[no-untyped-call]
    raise SystemExit(0)


def broker() -> NoReturn:
    run_foreground("rmqha", sys.argv[1:])


def namesrv() -> NoReturn:
    run_foreground("rmqnamesrv", sys.argv[1:])


def controller() -> NoReturn:
    run_foreground("rmqcontroller", sys.argv[1:])
