"""Asks the controllers to elect a certain broker of a set.

Spec: controller.md, section 10.4 (ELECT_MASTER with designateElect).
"""

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.server.controller.codes import ControllerRequestCode, ControllerResponseCode
from rmq_ha.server.controller.messages import ElectMasterRequest

TIMEOUT_MS = 3000


async def designate(
    calls: Calls, controller: str, set_name: tuple[str, str], broker_id: int
) -> str:
    """
    Have a broker elected.

    :param controller: address of the controllers' leader.
    :param set_name: names of cluster and broker.
    :returns: why it was not elected, as far as is known; empty: it was elected.
    """
    cluster, name = set_name
    header = ElectMasterRequest(
        cluster_name=cluster, broker_name=name, broker_id=broker_id, designate_elect=True
    )
    ask = RemotingCommand(ControllerRequestCode.ELECT_MASTER, ext=ext_fields(header))
    try:
        answer = await calls.invoke(controller, ask, TIMEOUT_MS)
    except (RemotingError, ProtocolViolation) as error:
        return f"it could not be asked for: {error}"
    if answer.code != ControllerResponseCode.SUCCESS:
        return f"the controller answered {answer.code}: {answer.reason}"
    return ""
