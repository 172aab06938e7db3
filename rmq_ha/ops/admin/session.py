"""
Session: the client and output of one command, and `run`, which starts the reactor for it once.
"""

import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NoReturn

import click
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEventAsClassicLogText,
    globalLogBeginner,
)

from rmq_ha.base.errors import CannotDecide, ConfigurationError, RemotingError, RmqHaError
from rmq_ha.base.host.clock import make_steady
from rmq_ha.base.host.real import make_host
from rmq_ha.base.model.printable import printable
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.errors import BrokerRefused, NoNameServer, NoRoute
from rmq_ha.ops.admin.file_errors import file_error_text
from rmq_ha.ops.admin.options import Options, current_options
from rmq_ha.ops.admin.output import Output

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
NO_ANSWER = 4

Work = Callable[["Session"], Coroutine[Any, Any, int | None]]


class NothingFound(RmqHaError):
    """Nothing was found of what the command asked for; the exit code is 3."""


class ChangeRefused(RmqHaError):
    """A change was refused or could not be completed; the text says why. The exit code is 1."""


class Session:
    """
    The client, the output and the end of one command.

    :ivar interrupted: fires when the user interrupts (Ctrl-C, SIGTERM); commands that run until
        then wait for it.
    """

    def __init__(self, host: Host, options: Options, output: Output) -> None:
        self.host = host
        self.options = options
        self.output = output
        self.interrupted: Deferred[None] = Deferred()
        self._instance: ClientInstance | None = None

    async def client(self) -> ClientInstance:
        """
        Return the client, which is made and started at the first call.

        :raises ConfigurationError: no name server is known, or a TLS option does not fit.
        """
        if not self.options.namesrv:
            raise ConfigurationError(
                "no name server: give --namesrv host:port, or set NAMESRV_ADDR"
            )
        return await self._start_client(self.options.namesrv)

    async def direct(self) -> ClientInstance:
        """Return the client for requests to known addresses; no name server need be known."""
        return await self._start_client(self.options.namesrv or "127.0.0.1")

    async def call(
        self, address: str, command: RemotingCommand, timeout_ms: int = 0
    ) -> RemotingCommand:
        """
        Send a request to any address, with the account and the TLS of the options. No name server
        is needed.

        :raises BrokerRefused: the server answers with another code than success.
        :raises RemotingError: the server does not answer.
        """
        instance = await self._start_client(self.options.namesrv or address)
        return await instance.call(address, command, timeout_ms)

    async def exchange(
        self, address: str, command: RemotingCommand, timeout_ms: int = 0
    ) -> RemotingCommand:
        """
        Send a request like `call`, and return the answer whatever its code is. It is for servers
        that have codes of their own.

        :raises RemotingError: the server does not answer.
        """
        instance = await self._start_client(self.options.namesrv or address)
        return await instance.invoke(address, command, timeout_ms or self.options.timeout_ms)

    def with_hint(self, text: str) -> str:
        """Return the text of a failure, followed by advice if any is known."""
        own = self.options
        has_account = own.credentials is not None
        return text + hint(text, has_account=has_account, use_tls=own.use_tls)

    async def close(self) -> None:
        """Close all connections."""
        if self._instance is not None:
            await self._instance.stop()

    async def _start_client(self, name_servers: str) -> ClientInstance:
        if self._instance is None:
            options = self.options
            if options.use_tls and not options.tls:
                self.output.warn("--tls without --tls-ca: nobody checks who the servers are")
            config = replace(options.client_config(), namesrv_addr=name_servers)
            self._instance = ClientInstance(self.host, config)
            await self._instance.start()
        return self._instance


def run(work: Work) -> NoReturn:
    """
    Run a command's work in the reactor, and end the process with its exit code.

    :param work: called with a `Session`; returns the exit code, or None for 0.
    """
    run_in_reactor(work, current_options())


def run_in_reactor(work: Work, options: Options) -> NoReturn:
    """
    Run a command's work like `run`, with options that do not come from `rmqha-admin`'s command
    line.
    """
    if options.verbose:
        _log_to_stderr()
    output = Output(options.as_json)

    def start(reactor: Any) -> "Deferred[None]":
        make_steady(reactor)
        session = Session(make_host(reactor), options, output)
        over: Deferred[None] = Deferred()
        done = Deferred.fromCoroutine(_ended(session, work, over))

        def interrupt() -> "Deferred[None]":
            if not session.interrupted.called:
                session.interrupted.callback(None)
            return over

        reactor.addSystemEventTrigger("before", "shutdown", interrupt)
        return done

    react(start)


async def _ended(session: Session, work: Work, over: "Deferred[None]") -> None:
    """
    Run the work and end with its exit code.

    :param over: fired at the end, so that the reactor stops.
    :raises SystemExit: always, with the exit code.
    """
    try:
        code = await perform(session, work)
        sys.stdout.flush()
    finally:
        over.callback(None)
    raise SystemExit(code)


async def perform(session: Session, work: Work) -> int:
    """
    Run the work, report a failure, and close the session.

    :returns: the exit code.
    """
    try:
        try:
            return await work(session) or DONE
        finally:
            await session.close()
    except click.ClickException as error:
        session.output.error(error.format_message(), exit_code=error.exit_code)
        return error.exit_code
    except OSError as error:
        if not error.filename:  # of no file: a fault of this program
            raise
        session.output.error(file_error_text(error), exit_code=FAILED)
        return FAILED
    except (RmqHaError, CannotDecide, CancelledError) as error:
        code = exit_code(error)
        details = {"code": error.code} if isinstance(error, BrokerRefused) else {}
        text = session.with_hint(str(error) or type(error).__name__)
        session.output.error(text, exit_code=code, **details)
        return code


def exit_code(error: Exception) -> int:
    """Return the exit code for a failure."""
    if isinstance(error, ConfigurationError):
        return USAGE
    if isinstance(error, NothingFound | NoRoute):
        return NOT_FOUND
    if isinstance(error, RemotingError | NoNameServer):
        return NO_ANSWER
    return FAILED


def _log_line(event: LogEvent) -> str:
    return printable(formatEventAsClassicLogText(event) or "")


def _log_to_stderr() -> None:
    predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.info)
    observer = FilteringLogObserver(FileLogObserver(sys.stderr, _log_line), [predicate])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


def hint(text: str, *, has_account: bool, use_tls: bool) -> str:
    """
    Return advice for a failure.

    :param text: the failure's text.
    :returns: text to append to the failure; empty: no advice is known.
    """
    for words, is_so, advice in (
        (
            "the request is not signed",
            not has_account,
            "give an account: RMQHA_ACCESS_KEY and RMQHA_SECRET_KEY, or a --context",
        ),
        (
            "the name server answered REQUEST_CODE_NOT_SUPPORTED",
            True,
            "is this a broker's port? A name server's is 9876, unless listenPort is set",
        ),
        (
            "is conflict with system topic",
            True,
            "RocketMQ itself uses this topic: nobody makes, changes or deletes it by a command",
        ),
        (
            "Connection was closed cleanly",
            not use_tls,
            "the server may take TLS only: try --tls, with --tls-ca; its log says why it closed",
        ),
        (
            "or its secret key is another",
            True,
            "compare RMQHA_ACCESS_KEY and RMQHA_SECRET_KEY with the broker's plain_acl.yml; an "
            "admin gives a new secret: acl set ACCOUNT, with RMQHA_NEW_SECRET",
        ),
        (
            "needs PUB",
            True,
            "an admin grants it: acl set ACCOUNT --topic TOPIC=PUB",
        ),
        (
            "needs SUB",
            True,
            "an admin grants it: acl set ACCOUNT --topic TOPIC=SUB --group GROUP=SUB",
        ),
        (
            "none makes topics by itself",
            True,
            "rmqha-admin topic create TOPIC",
        ),
        (
            "is signed by no root that this side trusts",
            True,
            "--tls-ca has to name the root that the server's certificate comes from",
        ),
    ):
        if is_so and words in text:
            return f"; {advice}"
    return ""
