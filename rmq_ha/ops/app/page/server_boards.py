"""The boards of a name server and of a controller."""

from collections.abc import Callable, Mapping

from rmq_ha.base.seams import Host
from rmq_ha.ops.app.page.board import Board, certificate_notices, certificates
from rmq_ha.ops.app.page.values import MachineRow, MemberRow, Overview, PageNotice, Tone
from rmq_ha.ops.app.page.watch import ServerState
from rmq_ha.ops.app.status.health import Health
from rmq_ha.server.controller.service import ControllerService
from rmq_ha.server.namesrv.namesrv import Namesrv

MOST_MACHINES = 200
_OLD_S = 60.0
"""
A broker that has not registered for this number of seconds is shown as late. A broker registers
every 30 s, and is forgotten after 120 s.
"""


class NamesrvBoard(Board):
    kind = "namesrv"

    def __init__(self, host: Host, namesrv: Namesrv, health: Callable[[], Health]) -> None:
        super().__init__(host, host.now_ms())
        self._namesrv = namesrv
        self._health = health

    def server_state(self) -> ServerState:
        namesrv, health = self._namesrv, self._health()
        counts = {
            "requests for brokers from other addresses": namesrv.addresses.refused,
            "registrations refused: too large": namesrv.refused_registrations,
        }
        if namesrv.access is not None:
            for kind, count in namesrv.access.refused.items():
                counts[f"requests refused by access control: {kind.value}"] = count
        for key, count in namesrv.dropped_frames.items():
            counts[f"frames dropped: {key}"] = count
        registered = {
            item.address: f"{item.set_name} {item.broker_id}" for item in self._machines()
        }
        return ServerState("name server", health.is_ready, "it serves", [], counts, registered)

    def measured(self) -> Mapping[str, float | None]:
        routes = self._namesrv.routes
        return {"brokers": len(routes.registrations()), "connections": self._namesrv.connections}

    def overview(self) -> Overview:
        namesrv = self._namesrv
        machines = self._machines()
        tls_certificates = certificates(namesrv.tls.certificates())
        alone = [
            PageNotice(
                Tone.ERROR, f"{name} has no master: it takes no messages", "docs/failover.md"
            )
            for name in sorted({item.set_name for item in machines})
            if not any(item.broker_id == 0 for item in machines if item.set_name == name)
        ]
        live = len(namesrv.routes.registrations())
        more = live - len(machines)
        return self.overview_with(
            "name server",
            f"port {namesrv.port}",
            self._health(),
            role="NAME_SERVER",
            notices=[*alone, *certificate_notices(tls_certificates, self.host.now_ms())],
            numbers={
                "brokers": live,
                "topics": len(namesrv.routes.topics()),
                "connections": namesrv.connections,
            },
            machines=machines,
            cluster_note=f"{more} more brokers are registered" if more > 0 else "",
            certificates=tls_certificates,
        )

    def _machines(self) -> list[MachineRow]:
        routes, now = self._namesrv.routes, self.host.clock.seconds()
        now_ms, info, live = self.host.now_ms(), routes.cluster_info(), routes.registrations()
        machines = []
        for name, route in sorted(info.brokers.items()):
            for number, address in sorted(route.addresses.items()):
                age = now - live.get(address, now)
                machines.append(
                    MachineRow(
                        set_name=name,
                        broker_id=number,
                        address=address,
                        cluster=route.cluster,
                        role="master" if number == 0 else "slave",
                        tone=Tone.GOOD if age < _OLD_S else Tone.WARN,
                        note="" if age < _OLD_S else "it has not registered in time",
                        seen_ms=now_ms - int(age * 1000),
                    )
                )
        return machines[:MOST_MACHINES]


class ControllerBoard(Board):
    """Shows the sets of brokers, the master of each, and the brokers that are in sync."""

    kind = "controller"

    def __init__(self, host: Host, controller: ControllerService) -> None:
        super().__init__(host, host.now_ms())
        self._controller = controller

    def server_state(self) -> ServerState:
        is_ready, text = self._controller.state()
        return ServerState(self._role(), is_ready, text, self._members(), {})

    def measured(self) -> Mapping[str, float | None]:
        machines = self._machines()
        return {
            "brokers": len([item for item in machines if item.tone is not Tone.ERROR]),
            "elections": self._controller.elections,
        }

    def overview(self) -> Overview:
        controller, health = self._controller, Health(*self._controller.state())
        machines = self._machines()
        tls_certificates = certificates(controller.tls.certificates())
        alone = [
            PageNotice(Tone.ERROR, f"the set {name} has no master", "docs/controller.md")
            for name in controller.sets.names()
            if getattr(controller.sets.get(name), "master", None) is None
        ]
        return self.overview_with(
            controller.group.settings.self_id,
            f"port {controller.port}",
            health,
            role=self._role(),
            mode=f"controllers, term {controller.group.term}",
            notices=[*alone, *certificate_notices(tls_certificates, self.host.now_ms())],
            numbers={
                "sets": len(controller.sets.names()),
                "brokers": len(machines),
                "elections": controller.elections,
            },
            machines=machines[:MOST_MACHINES],
            certificates=tls_certificates,
        )

    def _role(self) -> str:
        group = self._controller.group
        if group.leads:
            return "LEADER"
        return "CANDIDATE" if group.leader_id is None else "FOLLOWER"

    def _members(self) -> list[MemberRow]:
        """Return this controller, and the one that leads."""
        group = self._controller.group
        own = str(group.settings.self_id)
        role = self._role().lower()
        tone = Tone.WARN if role == "candidate" else Tone.GOOD
        state = "decides" if group.leads else "follows" if group.leader_id else "no leader"
        members = [MemberRow(key=own, name=own, role=role, state=state, tone=tone, is_here=True)]
        if group.leader_id not in (None, own):
            name = str(group.leader_id)
            members.append(
                MemberRow(key=name, name=name, role="leader", state="decides", tone=Tone.GOOD)
            )
        return members

    def _machines(self) -> list[MachineRow]:
        """
        Return the brokers of all sets. A follower hears no heartbeats, so it does not know which
        brokers live.
        """
        controller, now = self._controller, self.host.steady_ms()
        leads, now_ms = controller.group.leads, self.host.now_ms()
        machines = []
        for name in sorted(controller.sets.names()):
            known = controller.sets.get(name)
            if known is None:
                continue
            for number, address in known.addresses.items():
                beat = controller.liveness.last_heartbeat(name, number, now)
                is_in_sync = number in known.members
                notes = ["in sync" if is_in_sync else "not in sync"]
                tone = Tone.GOOD if is_in_sync else Tone.WARN
                if leads and beat is None:
                    notes.append("no heartbeat")
                    tone = Tone.ERROR
                machines.append(
                    MachineRow(
                        set_name=name,
                        broker_id=number,
                        address=address,
                        cluster=known.cluster_name,
                        role="master" if number == known.master else "slave",
                        tone=tone if leads else Tone.IDLE,
                        note=", ".join(notes),
                        log_end=None if beat is None or beat.max_offset < 0 else beat.max_offset,
                        seen_ms=None if beat is None else now_ms - (now - beat.heard),
                    )
                )
        return machines
