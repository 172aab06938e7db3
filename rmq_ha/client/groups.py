"""Public: offsets and lag of groups, and resets of offsets, for `client.ask`."""

from rmq_ha.client.lookup.groups import EARLIEST as EARLIEST
from rmq_ha.client.lookup.groups import LATEST as LATEST
from rmq_ha.client.lookup.groups import GroupLag as GroupLag
from rmq_ha.client.lookup.groups import OffsetMove as OffsetMove
from rmq_ha.client.lookup.groups import QueueLag as QueueLag
from rmq_ha.client.lookup.groups import Reset as Reset
from rmq_ha.client.lookup.groups import consume_stats as consume_stats
from rmq_ha.client.lookup.groups import in_flight as in_flight
from rmq_ha.client.lookup.groups import offset_at as offset_at
from rmq_ha.client.lookup.groups import reset_offset as reset_offset
