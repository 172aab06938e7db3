"""Rules: the names, ids and roles of brokers."""

from collections.abc import Iterator
from itertools import pairwise

from rmq_ha.base.config.all_keys import ALL_KEYS
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, registered_master
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

_SAME = tuple(name for name, row in ALL_KEYS.items() if row.is_same_in_set)


def _name_differs(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.name and broker.own_name and broker.own_name != broker.name:
            yield Observation(
                broker.address,
                f"registered as {broker.name}, but it answers as {broker.own_name}",
            )


def _cluster_differs(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        own = broker.config.get("brokerClusterName", "")
        if broker.cluster and own and own != broker.cluster:
            yield Observation(str(broker), f"registered in {broker.cluster}, but it says {own}")


def _id_differs(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        own = broker.config.get("brokerId", "")
        if broker.own_name == broker.name and not broker.is_dledger and _is_another(broker):
            yield Observation(
                str(broker), f"registered with id {broker.broker_id}, but it has {own}"
            )


def _is_another(broker: BrokerFacts) -> bool:
    """
    Return whether the broker that answers has another id than the one that name servers have for
    its address.
    """
    own = broker.config.get("brokerId", "")
    if _lacks_lease(broker):
        return False
    return broker.broker_id is not None and own.isdecimal() and int(own) != broker.broker_id


def _lacks_lease(broker: BrokerFacts) -> bool:
    """
    Return whether a broker is a master in controller mode without a lease. Such a master registers
    with the id that it has as a slave.
    """
    own = broker.config.get("brokerId", "")
    return broker.is_controlled and own == str(MASTER_ID) and broker.broker_id != MASTER_ID


def _role_and_id(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.broker_id is None or broker.is_dledger or _is_another(broker):
            continue
        if _lacks_lease(broker):
            continue
        if broker.is_slave and broker.broker_id == MASTER_ID:
            yield Observation(str(broker), "registered as the master (id 0), but it runs as SLAVE")
        elif broker.is_master and broker.broker_id != MASTER_ID:
            yield Observation(
                str(broker), f"registered as slave {broker.broker_id}, but it runs as {broker.role}"
            )


def _id_taken(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        for number in sorted({m.broker_id for m in members if m.broker_id is not None}):
            mine = [m for m in members if m.broker_id == number and m.answers]
            if len(mine) > 1 and not all(m.is_master for m in mine):  # else: two-masters
                who = ", ".join(m.address for m in mine)
                yield Observation(
                    name, f"id {number} of it is claimed by {len(mine)} brokers: {who}"
                )


def _unregistered_slave(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        known = {m.host for m in members} | {m.config.get("brokerIP2", "") for m in members}
        for master in members:
            for slave in master.slaves or () if master.is_master else ():
                host = host_of(str(slave.get("address", "")))
                if host not in known:
                    yield Observation(
                        name,
                        f"{host} copies the log of {master.address}, but no name server has a "
                        "slave of this name there",
                    )


def _two_masters(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        masters = {m.address: m for m in members if m.is_master and m.own_name in ("", name)}
        if len(masters) > 1:
            who = ", ".join(f"{m.address} (log ends at {m.end})" for m in masters.values())
            yield Observation(name, f"{len(masters)} brokers of it run as master: {who}")
    seen = {m.address for _, members in facts.pairs() for m in members if m.answers}
    for rival in facts.rivals():
        if rival.broker_id == MASTER_ID and rival.address not in seen:
            yield Observation(
                rival.broker_name,
                f"{rival.address} registers as its master, too, and does not answer here; name "
                f"servers send clients to {rival.holder}",
            )


def _master_aside(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.successor:
            yield Observation(
                str(broker),
                f"it was started as the master, and stands aside for {broker.successor}, which "
                f"is the master: it takes no messages",
            )


def _master_unregistered(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        leads = any(m.is_master and m.broker_id is not None for m in members)
        if registered_master(members) is not None or leads:
            continue
        for slave in members:
            link = slave.link
            if link and link.address and slave.is_slave and link.is_followed:
                yield Observation(
                    name,
                    f"no name server has a master of it, but {slave.address} follows one at "
                    f"{link.address}",
                )


def _no_master(facts: ClusterFacts) -> Iterator[Observation]:
    """
    Report names without a master, unless another rule reports the reason: the master lives, answers
    under another id, or its slaves have a wrong name.
    """
    known_why = {said.about for why in (_wrong_name, _master_unregistered) for said in why(facts)}
    known_why |= {item.name for item in facts.leaderless}  # the rule nobody-leads reports these
    for name, members in facts.pairs():
        leads = any(m.is_dledger or m.is_master for m in members)
        if registered_master(members) is None and not leads and name not in known_why:
            who = ", ".join(m.address for m in members)
            yield Observation(name, f"no name server has a master of it, only {who}: no puts")


def _wrong_name(facts: ClusterFacts) -> Iterator[Observation]:
    """
    Report slaves of a name that has no master, if the cluster also has a SYNC_MASTER without a
    slave.
    """
    lonely = [
        master
        for master in _without_followers(facts)
        if master.role == BrokerRole.SYNC_MASTER.value
    ]
    for name, members in facts.pairs():
        if not all(m.is_slave and not m.is_dledger for m in members):
            continue
        for master in lonely:
            if master.cluster == members[0].cluster:
                yield Observation(
                    name,
                    f"it has slaves only ({members[0].address}), while {master.name} of the same "
                    "cluster waits for a slave",
                )


def _followers(master: BrokerFacts, members: list[BrokerFacts]) -> int:
    if master.slaves is not None:
        return len(master.slaves)
    return sum(m.is_slave for m in members)


def _without_followers(facts: ClusterFacts) -> Iterator[BrokerFacts]:
    for _, members in facts.pairs():
        yield from (broker for broker in members if not _followers(broker, members))


def _no_slave(facts: ClusterFacts) -> Iterator[Observation]:
    return _lacks_slaves(facts, BrokerRole.SYNC_MASTER, "a SYNC_MASTER that no slave follows")


def _no_copy(facts: ClusterFacts) -> Iterator[Observation]:
    return _lacks_slaves(facts, BrokerRole.ASYNC_MASTER, "an ASYNC_MASTER without a slave")


def _lacks_slaves(facts: ClusterFacts, role: BrokerRole, what: str) -> Iterator[Observation]:
    """
    Report masters without a slave. For a name with a broker that stands aside, another rule says
    that this broker is to be demoted.
    """
    aside = {broker.name for broker in facts.brokers if broker.successor}
    for master in _without_followers(facts):
        elects = master.is_dledger or master.is_controlled
        if master.role == role.value and not elects and master.name not in aside:
            yield Observation(str(master), what)


def _alone_in_set(facts: ClusterFacts) -> Iterator[Observation]:
    for master in _without_followers(facts):
        if master.is_master and master.is_controlled:
            yield Observation(str(master), "it leads, and no other broker of its name follows")


def _pair_differs(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        telling = [m for m in members if m.answers]
        for first, other in pairwise(telling):
            for key in _SAME:
                value, other_value = first.config.get(key), other.config.get(key)
                if value is not None and other_value is not None and value != other_value:
                    yield Observation(
                        name,
                        f"{key} is {value} at {first.address} and {other_value} at {other.address}",
                    )


def _versions(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        telling = [m for m in members if m.answers]
        for versions in (
            {m.address: m.info.get("brokerVersionDesc", "") for m in telling},
            {m.address: str(m.replication.get("release", "")) for m in telling},
        ):
            if len({text for text in versions.values() if text}) > 1:
                yield Observation(
                    name, ", ".join(f"{who}: {text}" for who, text in versions.items())
                )


def _two_kinds(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        telling = [m for m in members if m.answers]
        if len({m.is_ours for m in telling}) > 1:
            java = ", ".join(m.address for m in telling if not m.is_ours)
            yield Observation(
                name, f"{java} is no broker of rmq-ha, or an older one: a Java broker?"
            )


def _not_writable(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        text = broker.config.get("brokerPermission", "")
        if broker.is_master and text.isdecimal() and int(text) & 6 != 6:
            yield Observation(str(broker), f"brokerPermission is {text}, not 6")


def _not_yet(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        begins = broker.config.get("startAcceptSendRequestTimeStamp", "")
        if broker.is_master and begins.isdecimal() and int(begins) > facts.now_ms:
            wait = (int(begins) - facts.now_ms) / 1000
            yield Observation(str(broker), f"it refuses sends for {wait:.0f} s more")


def _auto_create(facts: ClusterFacts) -> Iterator[Observation]:
    masters = [b for b in facts.answering() if b.is_master]
    for broker in masters:
        if len(masters) > 1 and broker.config.get("autoCreateTopicEnable") == "true":
            yield Observation(
                str(broker), f"autoCreateTopicEnable=true with {len(masters)} masters"
            )


RULES = (
    Rule(
        "name-differs",
        DoctorSeverity.ERROR,
        "at a registered address a broker of another brokerName answers: two brokers share an "
        "address, or a port is forwarded to the wrong one",
        "compare `brokerIP1`, `listenPort` and `brokerName` of both brokers, and change one of "
        "them",
        _name_differs,
    ),
    Rule(
        "cluster-differs",
        DoctorSeverity.WARNING,
        "a broker is registered in another cluster than its settings name",
        "wait 30 s for the broker's next registration; if it does not help, another broker of "
        "the same name registers with another `brokerClusterName`",
        _cluster_differs,
    ),
    Rule(
        "id-differs",
        DoctorSeverity.ERROR,
        "a broker answers with another brokerId than its address is registered with",
        "wait 120 s until the old registration is gone; if it does not help, two brokers use "
        "one address: change `listenPort` or `brokerIP1` of one broker",
        _id_differs,
    ),
    Rule(
        "role-and-id",
        DoctorSeverity.ERROR,
        "a broker's role and id do not fit together: clients send to the broker with id 0, and "
        "only a master takes messages",
        "type `rmqha-admin promote` or `rmqha-admin demote` on the broker's machine, which sets "
        "both; docs/failover.md",
        _role_and_id,
    ),
    Rule(
        "id-taken",
        DoctorSeverity.ERROR,
        "two brokers registered the same brokerName and brokerId: each name server keeps the "
        "broker that registered last",
        "give one of the two brokers another `brokerId` (a slave), or another `brokerName`, and "
        "restart it",
        _id_taken,
    ),
    Rule(
        "slave-unregistered",
        DoctorSeverity.WARNING,
        "a slave copies a master's log, but no name server lists it: another broker took its "
        "id, its `namesrvAddr` differs, it does not reach the name servers, or it connects "
        "from another address than it registers",
        "compare `brokerId`, `brokerName` and `namesrvAddr` of the slaves; if you know no "
        "slave there, set `haAllowedSlaves`",
        _unregistered_slave,
    ),
    Rule(
        "two-masters",
        DoctorSeverity.ERROR,
        "two brokers of one brokerName run as master: each takes messages that the other lacks",
        "stop one of them at once (as a rule the one with the shorter log), then `rmqha-admin "
        "demote` there; docs/failover.md",
        _two_masters,
    ),
    Rule(
        "master-aside",
        DoctorSeverity.ERROR,
        "an old master came back after its slave was promoted. It takes no messages, and the new "
        "master has no slave",
        "type `rmqha-admin demote` on the old master's machine; docs/failover.md",
        _master_aside,
    ),
    Rule(
        "master-unregistered",
        DoctorSeverity.ERROR,
        "a master runs, because its slave follows it, but no name server knows the master: "
        "producers do not find it",
        "do not promote the slave: there would be two masters. Repair the connection between "
        "the master and the name servers (`namesrvAddr`, a firewall); the master's log says why "
        "a registration fails. If master and slave have different names, give both one "
        "`brokerName`",
        _master_unregistered,
    ),
    Rule(
        "no-master",
        DoctorSeverity.ERROR,
        "a brokerName has no master: consumers read from its slaves, producers cannot send",
        "first look at the old master's machine (docs/failover.md, step 1). If the master's "
        "process ended and the machine did not, start the master again. If the machine lost power "
        "or its disk, or you do not know, do not start it first: type `rmqha-admin promote` on the "
        "machine of the slave with the longest log, then `rmqha-admin demote` on the old machine",
        _no_master,
    ),
    Rule(
        "wrong-broker-name",
        DoctorSeverity.ERROR,
        "a slave has a brokerName that no master has, while a master of the same cluster has no "
        "slave",
        "give the slave the `brokerName` of its master (upper and lower case differ), and "
        "restart the slave",
        _wrong_name,
    ),
    Rule(
        "no-slave",
        DoctorSeverity.ERROR,
        "a SYNC_MASTER has no slave: sends answer SLAVE_NOT_AVAILABLE, and acknowledged "
        "messages are on one machine",
        "start the slave; if it runs, the slave's log and `/healthz` say why it does not follow "
        "(see ha-port-blocked, wrong-broker-name); another broker may be the master, too (see "
        "two-masters)",
        _no_slave,
    ),
    Rule(
        "no-copy",
        DoctorSeverity.NOTE,
        "a master has no slave: if its disk is lost, its messages are lost",
        "add a slave with the same `brokerName` and `brokerId=1`, unless you want no second copy",
        _no_copy,
    ),
    Rule(
        "alone-in-set",
        DoctorSeverity.WARNING,
        "a master in controller mode has no slave that follows: acknowledged messages are on "
        "one machine, and if it dies no broker can be elected",
        "start another broker with the same `brokerName` and `controllerAddr` (the controllers "
        "give it its id); if it runs, that broker's log and `/healthz` say why it does not "
        "follow (see not-following, ha-port-blocked)",
        _alone_in_set,
    ),
    Rule(
        "settings-differ",
        DoctorSeverity.WARNING,
        "brokers of one name have different settings: after a fail-over the other broker's "
        "settings hold",
        "write the same value into both files; if the key may change while the broker runs, use "
        "`rmqha-admin broker config set NAME KEY=VALUE`",
        _pair_differs,
    ),
    Rule(
        "versions-differ",
        DoctorSeverity.WARNING,
        "brokers of one name have different versions",
        "finish the upgrade: slaves first, then the master",
        _versions,
    ),
    Rule(
        "two-kinds",
        DoctorSeverity.NOTE,
        "a pair of an rmq-ha broker and a Java broker: a Java slave cannot compare its log "
        "with its master's",
        "before a Java broker returns as a slave after a fail-over, empty its store; "
        'docs/operations.md, "Logs that part"',
        _two_kinds,
    ),
    Rule(
        "not-writable",
        DoctorSeverity.ERROR,
        "a master takes no messages, or gives none, because its brokerPermission was changed",
        "when the maintenance of the broker is over: `rmqha-admin broker config set NAME "
        "brokerPermission=6`",
        _not_writable,
    ),
    Rule(
        "sends-refused-until",
        DoctorSeverity.ERROR,
        "startAcceptSendRequestTimeStamp lies in the future, or the broker's clock is behind",
        "`rmqha-admin broker config set NAME startAcceptSendRequestTimeStamp=0`; see clocks-apart",
        _not_yet,
    ),
    Rule(
        "auto-create",
        DoctorSeverity.NOTE,
        "topics are created by the first send: with several masters a topic may be on one of "
        "them only",
        "create topics with `rmqha-admin topic create` and set autoCreateTopicEnable=false",
        _auto_create,
    ),
)
