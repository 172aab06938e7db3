"""A name server's metrics and health."""

from collections.abc import Mapping

from rmq_ha.base.seams import Host
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.server.namesrv.namesrv import Namesrv

MOST_BROKERS = 200


class NamesrvStatus:
    """The metrics and health of a running name server."""

    def __init__(self, host: Host, namesrv: Namesrv) -> None:
        self._clock = host.clock
        self._namesrv = namesrv

    def constants(self) -> Mapping[str, str]:
        return {"server": "rmqnamesrv"}

    def collect(self, samples: Samples) -> None:
        routes, now = self._namesrv.routes, self._clock.seconds()
        live = routes.registrations()
        samples.add("rmqha_namesrv_brokers", len(live))
        samples.add("rmqha_namesrv_topics", len(routes.topics()))
        samples.add("rmqha_namesrv_refused_total", self._namesrv.addresses.refused)
        access = self._namesrv.access
        if access is not None:
            samples.add("rmqha_namesrv_acl_previous_secret_total", access.previous_secrets)
            samples.add("rmqha_namesrv_acl_odd_times_total", access.odd_times)
            for kind, count in access.refused.items():
                samples.add("rmqha_namesrv_acl_refused_total", count, reason=kind.value)
        samples.add("rmqha_namesrv_connections", self._namesrv.connections)
        refused = self._namesrv.refused_registrations
        samples.add("rmqha_namesrv_refused_registrations_total", refused)
        samples.add("rmqha_namesrv_takeovers_total", routes.claims.takeovers)
        samples.add("rmqha_namesrv_rivals", len(routes.rivals(now)))
        for key, count in self._namesrv.dropped_frames.items():
            samples.add("rmqha_namesrv_dropped_frames_total", count, reason=key)
        for address, when in list(live.items())[:MOST_BROKERS]:
            age = max(0.0, now - when)
            samples.add("rmqha_namesrv_registration_age_seconds", age, address=address)

    def health(self) -> Health:
        if not self._namesrv.port:
            return Health(False, "the name server does not listen")
        return Health(True, f"{len(self._namesrv.routes.registrations())} brokers are registered")
