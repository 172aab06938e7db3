"""The drawings of states in the packages' docstrings name each state of the code."""

import ast
import inspect
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.client import consume
from rmq_ha.client.consume import consumer_base, consumer_member
from rmq_ha.server import broker, controller, dledger
from rmq_ha.server.broker import transactions
from rmq_ha.server.broker.role import RoleSwitch
from rmq_ha.server.broker.transactions.fates import HalfMessageFate
from rmq_ha.server.broker.transactions.verdict import Verdict
from rmq_ha.server.controller.events import Event
from rmq_ha.server.replication import classic, epochs
from rmq_ha.server.replication.classic import link as classic_link
from rmq_ha.server.replication.classic.link import LinkFault
from rmq_ha.server.replication.classic.replica import ReplicaStage
from rmq_ha.server.replication.epochs import link as epoch_link
from rmq_ha.server.replication.epochs import roles
from rmq_ha.server.replication.epochs.roles.actions import Follow, Lead, SetRole, StepDown

_MOST_LINES = 15


def _drawing(package: ModuleType) -> str:
    """The indented lines behind the first `::` of a package's docstring."""
    text = inspect.cleandoc(package.__doc__ or "").split("::\n", 1)[1]
    lines = []
    for line in text.splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line)
    return "\n".join(lines).strip("\n")


def _texts(module: ModuleType, name: str) -> set[str]:
    """The texts that a module gives to an attribute of this name, or returns from it."""
    found = set()
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        values: list[ast.AST] = []
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "attr", "") == name:
            values = list(ast.walk(node.value))
        elif isinstance(node, ast.FunctionDef) and node.name == name:
            values = [part for item in node.body[1:] for part in ast.walk(item)]
        found.update(
            value.value
            for value in values
            if isinstance(value, ast.Constant) and isinstance(value.value, str)
        )
    return found


STATES = {
    controller: {event.__name__ for event in get_args(Event)},
    classic: {stage.value for stage in ReplicaStage}
    | {fault.value for fault in LinkFault}
    | _texts(classic_link, "_state") - {"stopped"},
    epochs: _texts(epoch_link, "state") | {"following", "stranded"},
    roles: {role.value for role in SetRole} | {Lead.__name__, Follow.__name__, StepDown.__name__},
    consume: _texts(consumer_member, "state") | _texts(consumer_base, "state") | {"stopped"},
    transactions: {fate.name for fate in HalfMessageFate} | {verdict.name for verdict in Verdict},
    broker: {
        function.__name__ for function in (RoleSwitch.lead, RoleSwitch.follow, RoleSwitch.stand)
    },
    dledger: {role.value for role in MemberRole},
}


@pytest.mark.parametrize("package", STATES, ids=lambda package: package.__name__)
def test_a_drawing_names_each_state_of_the_code(package: ModuleType) -> None:
    drawing = _drawing(package)
    assert [state for state in sorted(STATES[package]) if state not in drawing] == []


@pytest.mark.parametrize("package", STATES, ids=lambda package: package.__name__)
def test_a_drawing_is_taken_in_at_a_glance(package: ModuleType) -> None:
    assert len(_drawing(package).splitlines()) <= _MOST_LINES


def test_the_states_are_read_from_the_code() -> None:
    """Else an empty set would pass."""
    assert {"no address", "connecting", "unreachable"} <= STATES[classic]
    assert {"connecting", "handshake"} <= STATES[epochs]
    assert {"new", "starting", "running", "stopping"} <= STATES[consume]
