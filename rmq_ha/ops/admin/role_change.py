"""The steps that `promote` and `demote` have in common: tell, ask, write, restart, verify."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rmq_ha.base.host.command import run_command
from rmq_ha.client.connection.asks import Asker
from rmq_ha.ops.admin.confirm import is_wanted, sure_options
from rmq_ha.ops.admin.options import broker_file_option, combine_options
from rmq_ha.ops.admin.pair import PairMember, RegisteredName, look_at, registered
from rmq_ha.ops.admin.role_file import LineChange, RoleFile
from rmq_ha.ops.admin.session import ChangeRefused, Session

T = TypeVar("T")
_LOOK_S = 0.5
_NO_NAME_SERVER = "no name server is named: neither namesrvAddr of the file nor --namesrv"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """
    How a change of role is carried out.

    :ivar restart: the command that restarts the broker; empty: the operator restarts it.
    :ivar wait: seconds to wait until the broker has its new role.
    :ivar run: runs the restart command in another thread and returns its exit code; None: the shell
        runs it.
    """

    restart: str = ""
    wait: float = 120.0
    yes: bool = False
    dry_run: bool = False
    run: "Callable[[str], Deferred[int]] | None" = None


change_options = combine_options(
    sure_options,
    broker_file_option("The broker's properties file, on the broker's machine."),
    click.option(
        "--restart",
        default="",
        metavar="COMMAND",
        help="The command that restarts the broker, like 'systemctl restart rmqha-broker'. "
        "Without it you restart the broker when you are asked to.",
    ),
    click.option(
        "--wait",
        type=click.FloatRange(min=0),
        default=120.0,
        show_default=True,
        metavar="SECONDS",
        help="Seconds to wait until the broker has its new role.",
    ),
)
"""Options of commands that change a role."""
OF_A_CLASSIC_PAIR = (
    "has no effect in controller mode (enableControllerMode=true in the file), where controllers"
    " give the roles to brokers that run: no file changes, and nothing is restarted. Leave it out"
)


class RoleChange:
    """
    One change of the role of one broker.

    :ivar report: the values that JSON shows at the end, whatever the outcome is.
    """

    def __init__(self, session: Session, file: RoleFile, how: ChangeOptions) -> None:
        self.session = session
        self.file = file
        self.how = how
        self.report: dict[str, Any] = {
            "broker": file.broker_name,
            "address": file.address,
            "config": file.path,
            "warnings": [],
            "done": False,
        }
        self._asker: Asker | None = None

    async def asker(self) -> Asker:
        """Return a client that uses the name servers of the options, else those of the file."""
        if self._asker is None:
            session = self.session
            known = session.options.namesrv or self.file.configuration.broker.namesrv_addr or ""
            session.options = replace(session.options, namesrv=known)
            self._asker = Asker(await session.direct())
        return self._asker

    async def own_member(self) -> PairMember:
        """
        Look at the broker of the file.

        :raises ChangeRefused: another broker answers at its address.
        """
        member = await look_at(await self.asker(), self.file.address)
        if member.role is not None and member.broker_name != self.file.broker_name:
            raise ChangeRefused(
                f"{member.address} is the broker {member.broker_name}, but {self.file.path} is the"
                f" file of {self.file.broker_name}. Name the file of {member.broker_name}"
            )
        return member

    async def registered(self) -> RegisteredName:
        """Ask the name servers for the brokers of this name."""
        asker = await self.asker()
        if not self.session.options.namesrv:
            return RegisteredName({}, _NO_NAME_SERVER)
        return await registered(asker, self.file.broker_name)

    def warn(self, text: str) -> None:
        """Warn the operator of a fact that matters for the answer to the question."""
        self.report["warnings"].append(text)
        if not self.session.output.as_json:
            self.session.output.warn(text)

    def plan(self, changes: list[LineChange]) -> None:
        self.report["changes"] = [item._asdict() for item in changes]
        say = self.session.output.say
        if not changes:
            say(f"{self.file.path}: nothing to change")
        for item in changes:
            before = "(missing)" if item.before is None else item.before
            say(f"{self.file.path}: {item.key}={before} becomes {item.key}={item.after}")

    def is_wanted(self, question: str) -> bool:
        """
        Ask whether to make the change; `--yes` answers it.

        :returns: false for `--dry-run`.
        :raises NotAgreed: the user answers no.
        """
        return is_wanted(question, yes=self.how.yes, dry_run=self.how.dry_run)

    async def carry_out(self, changes: list[LineChange], *, restarts: bool) -> None:
        """
        Write the file, and restart the broker so that it reads the file.

        :raises ChangeRefused: the restart command failed.
        """
        self.file.write(changes)
        output, how = self.session.output, self.how
        if changes:
            output.note(f"{self.file.path} is changed; as it was: {self.file.path}.bak")
        if not restarts:
            return
        if not how.restart:
            output.note(f"now restart the broker {self.file.address}; waiting {how.wait:.0f} s")
            return
        output.note(f"running: {how.restart}")
        run = how.run or (lambda text: self.session.host.worker.call(run_command, text))
        with output.progress("restarting", None):
            code = await run(how.restart)
        if code:
            raise ChangeRefused(
                f"the restart command ended with exit code {code}. {self.file.path} has the new"
                " role: start the broker, then type this command again, which verifies it"
            )

    async def wait_until(self, title: str, look: Callable[[], Awaitable[T | None]]) -> T | None:
        """
        Repeat `look` until it finds something.

        :param title: text that says what is waited for.
        :returns: the result of `look`; None: it took longer than `wait` seconds, or the user
            pressed Ctrl-C.
        """
        clock: Any = self.session.host.clock
        began, shown = clock.seconds(), 0
        with self.session.output.progress(f"{title}, s", int(self.how.wait)) as steps:
            while True:
                seen = await look()
                if seen is not None:
                    return seen
                passed = clock.seconds() - began
                if passed >= self.how.wait or self.session.interrupted.called:
                    return None
                steps.advance(int(passed) - shown)
                shown = int(passed)
                await deferLater(clock, _LOOK_S)
