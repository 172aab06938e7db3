"""The text that tells producers and operators why a group takes no messages."""

from collections.abc import Mapping

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.server.dledger.node import Node


def why_no_puts(
    settings: DLedgerSettings, node: Node | None, silent: Mapping[str, str], pending: int
) -> str:
    """
    Return a text that says which members answer, which do not, and how an operator can mend that.

    :param node: None: this member does not take part yet.
    :param silent: by member, the error of its last call, if that failed.
    :param pending: number of puts that wait for a quorum.
    """
    if node is None:
        return f"member {settings.self_id} of group {settings.group} does not take part yet"
    if node.role is MemberRole.FOLLOWER and node.leader_id is not None:
        return f"member {node.leader_id} leads group {settings.group}, and takes the messages"
    answering = [peer for peer in settings.others if peer not in silent]
    missing = settings.quorum - 1 - len(answering)
    who = _members_text(settings, answering, silent)
    if missing > 0:
        them = "it" if missing == 1 else "them"
        return (
            f"group {settings.group} has no quorum ({settings.quorum} of {len(settings.peers)} "
            f"members): {who}; {missing} more must answer: start {them}, or mend the network to "
            f"{them}"
        )
    if node.role is not MemberRole.LEADER:
        return f"group {settings.group} elects a leader: {who}; try again"
    return (
        f"a quorum of group {settings.group} is too slow ({pending} puts wait for it): {who}; look "
        "at the disks and the network of the members that are behind (rmqha_dledger_lag_entries)"
    )


def _members_text(
    settings: DLedgerSettings, answering: list[str], silent: Mapping[str, str]
) -> str:
    parts = []
    if answering:
        verb = "answers" if len(answering) == 1 else "answer"
        parts.append(f"{' and '.join(answering)} {verb}")
    for peer in settings.others:
        if peer in silent:
            parts.append(f"{peer} at {settings.peers[peer]} does not ({silent[peer]})")
    return ", ".join(parts)
