"""The text that tells operators why a broker in controller mode takes no messages."""

from rmq_ha.server.replication.epochs.context import RoleContext
from rmq_ha.server.replication.epochs.roles.actions import Follow
from rmq_ha.server.replication.epochs.sync_state import SyncState


def why_no_puts(context: RoleContext, state: SyncState | None, stranger: str | None) -> str:
    """
    Return why this broker takes no messages, and how to mend that; empty: it takes them.

    :param state: the state of the epoch that this broker leads; None: it leads none.
    :param stranger: address of the elected master, if it may not be followed; otherwise None.
    """
    addresses = ", ".join(context.configuration.controlled.controllers)
    if state is None:
        return _why_not_leading(context, addresses, stranger)
    if not state.has_enough:
        return (
            f"{len(state.known.members)} brokers are in sync, and "
            f"minInSyncReplicas={context.settings.min_in_sync_replicas}: start the others"
        )
    if not context.conversation.may_accept:
        return (
            f"the controllers ({addresses}) do not answer, and another broker may be elected: "
            "start them, or mend the network to them"
        )
    if context.is_leaving:
        return "this broker stops and hands over; try again"
    if not context.log.admits:
        epoch = context.history.epochs.last_epoch
        return f"this broker begins to lead epoch {epoch}; try again"
    return ""


def why_not_kept(context: RoleContext, state: SyncState | None, stranger: str | None) -> str:
    """
    Return why too few brokers kept a put in time, and how to mend that; empty: no reason is known.
    """
    why = why_no_puts(context, state, stranger)
    silent = 0.0 if why or state is None else context.now() - context.conversation.led_until
    if silent <= 0:
        return why
    addresses = ", ".join(context.configuration.controlled.controllers)
    return (
        f"no controller ({addresses}) has answered for {silent:.1f} s, so another broker may "
        "be elected, and may lack this message: send it again"
    )


def _why_not_leading(context: RoleContext, addresses: str, stranger: str | None) -> str:
    if stranger is not None:
        return (
            f"the controllers ({addresses}) name {stranger} as the master, which is "
            f"not in haTrustedMasters={context.broker.masters.text}: add it there if it is one of "
            "yours. If it is not, a stranger was elected: remove it from the controllers "
            "(cleanBrokerMetadata), and set their controllerAllowedBrokers"
        )
    if isinstance(decision := context.decision, Follow):
        return f"the broker at {decision.master_address} leads, and takes the messages"
    controllers = context.controllers
    if controllers is not None and controllers.manager.is_standing_back:
        return (
            "this broker was the master when it crashed: it waits until the controllers "
            f"({addresses}) take it for dead, after controllerHeartBeatTimeoutMills"
        )
    if context.has_to_follow_first:
        return (
            "brokerRole=SLAVE: its store has never followed an elected master, and may "
            "lack messages: start the pair's master in controller mode; if that one is "
            "lost for ever, set brokerRole=SYNC_MASTER here"
        )
    awaited = () if controllers is None else controllers.manager.awaited
    if awaited and context.broker_id not in awaited:
        ids = " or ".join(map(str, awaited))
        return (
            f"nobody leads, and this broker may lack messages: start broker {ids} of this "
            "set, which has all (the /healthz of the controller that leads names its "
            f"address; controllers: {addresses})"
        )
    complaint = "" if controllers is None else controllers.complaint
    text = f"no controller ({addresses}) has said who leads; try again"
    return f"{text}. {complaint}" if complaint else text
