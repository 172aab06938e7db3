"""Public: look-ups of routes, offsets and messages, for `client.ask`."""

from rmq_ha.client.lookup.lookups import KeyQuery as KeyQuery
from rmq_ha.client.lookup.lookups import PlaceId as PlaceId
from rmq_ha.client.lookup.lookups import PullTerms as PullTerms
from rmq_ha.client.lookup.lookups import addresses_in as addresses_in
from rmq_ha.client.lookup.lookups import cluster_info as cluster_info
from rmq_ha.client.lookup.lookups import commit_offset as commit_offset
from rmq_ha.client.lookup.lookups import committed_offset as committed_offset
from rmq_ha.client.lookup.lookups import in_order as in_order
from rmq_ha.client.lookup.lookups import message_at as message_at
from rmq_ha.client.lookup.lookups import messages_by_key as messages_by_key
from rmq_ha.client.lookup.lookups import pull as pull
from rmq_ha.client.lookup.lookups import pull_records as pull_records
from rmq_ha.client.lookup.lookups import queue_number as queue_number
from rmq_ha.client.lookup.lookups import topic_route as topic_route
