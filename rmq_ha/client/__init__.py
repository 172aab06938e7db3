"""The client: everything that an application uses of it.

    from rmq_ha.client import BlockingClient, Message

A newcomer needs ten names: `connect`, `Message`, `MessageExt`, `SendResult`, `Producer`,
`PushConsumer`, `BlockingClient`, `BlockingConsumer`, `ClientConfig` and `MQClientError`. `__all__`
has them first, and all others in groups. `rmq_ha.client.aio` has `connect` and the classes for
asyncio, `rmq_ha.client.blocking` the classes for threads.

What these three modules name is public; docs/client.md says for how long. Every other module below
is internal. A name is imported when it is first asked for: a program that sends with a
`BlockingClient` never imports Twisted.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq_ha.base.errors import ConfigurationError as ConfigurationError
    from rmq_ha.base.errors import RemotingConnectError as RemotingConnectError
    from rmq_ha.base.errors import RemotingError as RemotingError
    from rmq_ha.base.errors import RemotingTimeout as RemotingTimeout
    from rmq_ha.base.errors import RmqHaError as RmqHaError
    from rmq_ha.base.remoting.signing import Credentials as Credentials
    from rmq_ha.client import aio as aio
    from rmq_ha.client import blocking as blocking
    from rmq_ha.client.blocking import BlockingClient as BlockingClient
    from rmq_ha.client.blocking_consumers import BlockingConsumer as BlockingConsumer
    from rmq_ha.client.blocking_consumers import BlockingPullConsumer as BlockingPullConsumer
    from rmq_ha.client.blocking_simple import BlockingSimpleConsumer as BlockingSimpleConsumer
    from rmq_ha.client.blocking_transactions import (
        BlockingTransactionListener as BlockingTransactionListener,
    )
    from rmq_ha.client.blocking_transactions import (
        BlockingTransactionProducer as BlockingTransactionProducer,
    )
    from rmq_ha.client.connecting import connect as connect
    from rmq_ha.client.connection.hooks import Delivery as Delivery
    from rmq_ha.client.connection.hooks import DeliveryHook as DeliveryHook
    from rmq_ha.client.connection.hooks import SendContext as SendContext
    from rmq_ha.client.connection.hooks import SendHook as SendHook
    from rmq_ha.client.connection.instance import ClientInstance as ClientInstance
    from rmq_ha.client.consume.consume_service import ConsumeHook as ConsumeHook
    from rmq_ha.client.consume.consume_service import ConsumeMessageContext as ConsumeMessageContext
    from rmq_ha.client.consume.consume_tracing import ConsumeTracer as ConsumeTracer
    from rmq_ha.client.consume.lite_pull_consumer import LitePullConsumer as LitePullConsumer
    from rmq_ha.client.consume.offsets import OffsetStore as OffsetStore
    from rmq_ha.client.consume.offsets import ReadOffsetType as ReadOffsetType
    from rmq_ha.client.consume.pull_api import Filter as Filter
    from rmq_ha.client.consume.pull_consumer import PullConsumer as PullConsumer
    from rmq_ha.client.consume.push_consumer import PushConsumer as PushConsumer
    from rmq_ha.client.consume.simple_consumer import SimpleConsumer as SimpleConsumer
    from rmq_ha.client.rebalance.consistent_hash import (
        AllocateConsistentHash as AllocateConsistentHash,
    )
    from rmq_ha.client.rebalance.machine_rooms import (
        AllocateByMachineRoom as AllocateByMachineRoom,
    )
    from rmq_ha.client.rebalance.machine_rooms import (
        AllocateMachineRoomNearby as AllocateMachineRoomNearby,
    )
    from rmq_ha.client.rebalance.strategies import AllocateAveragely as AllocateAveragely
    from rmq_ha.client.rebalance.strategies import (
        AllocateAveragelyByCircle as AllocateAveragelyByCircle,
    )
    from rmq_ha.client.rebalance.strategies import AllocateByConfig as AllocateByConfig
    from rmq_ha.client.rebalance.strategies import AllocateStrategy as AllocateStrategy
    from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere as ConsumeFromWhere
    from rmq_ha.client.rules.consumer_settings import (
        LitePullConsumerConfig as LitePullConsumerConfig,
    )
    from rmq_ha.client.rules.consumer_settings import MessageModel as MessageModel
    from rmq_ha.client.rules.consumer_settings import PullConsumerConfig as PullConsumerConfig
    from rmq_ha.client.rules.consumer_settings import PushConsumerConfig as PushConsumerConfig
    from rmq_ha.client.rules.consumer_settings import SimpleConsumerConfig as SimpleConsumerConfig
    from rmq_ha.client.rules.errors import BatchFailed as BatchFailed
    from rmq_ha.client.rules.errors import BrokerRefused as BrokerRefused
    from rmq_ha.client.rules.errors import DuplicatesPossible as DuplicatesPossible
    from rmq_ha.client.rules.errors import ForkedClient as ForkedClient
    from rmq_ha.client.rules.errors import IllegalMessage as IllegalMessage
    from rmq_ha.client.rules.errors import MQClientError as MQClientError
    from rmq_ha.client.rules.errors import NoMaster as NoMaster
    from rmq_ha.client.rules.errors import NoNameServer as NoNameServer
    from rmq_ha.client.rules.errors import NoRoute as NoRoute
    from rmq_ha.client.rules.errors import NoTimers as NoTimers
    from rmq_ha.client.rules.errors import NotStarted as NotStarted
    from rmq_ha.client.rules.errors import ReceiptExpired as ReceiptExpired
    from rmq_ha.client.rules.errors import RequestTimeout as RequestTimeout
    from rmq_ha.client.rules.errors import SendFailed as SendFailed
    from rmq_ha.client.rules.errors import SendTimeout as SendTimeout
    from rmq_ha.client.rules.errors import TooManyInFlight as TooManyInFlight
    from rmq_ha.client.rules.listening import ConcurrentListener as ConcurrentListener
    from rmq_ha.client.rules.listening import (
        ConsumeConcurrentlyContext as ConsumeConcurrentlyContext,
    )
    from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus as ConsumeConcurrentlyStatus
    from rmq_ha.client.rules.listening import ConsumeOrderlyContext as ConsumeOrderlyContext
    from rmq_ha.client.rules.listening import ConsumeOrderlyStatus as ConsumeOrderlyStatus
    from rmq_ha.client.rules.listening import OrderlyListener as OrderlyListener
    from rmq_ha.client.rules.messages import Message as Message
    from rmq_ha.client.rules.messages import MessageExt as MessageExt
    from rmq_ha.client.rules.messages import MessageQueue as MessageQueue
    from rmq_ha.client.rules.messages import PullResult as PullResult
    from rmq_ha.client.rules.messages import PullStatus as PullStatus
    from rmq_ha.client.rules.messages import SendResult as SendResult
    from rmq_ha.client.rules.messages import SendStatus as SendStatus
    from rmq_ha.client.rules.messages import UndecodableBody as UndecodableBody
    from rmq_ha.client.rules.queue_choice import Selector as Selector
    from rmq_ha.client.rules.queue_choice import select_by_hash as select_by_hash
    from rmq_ha.client.rules.serializers import AvroSerializer as AvroSerializer
    from rmq_ha.client.rules.serializers import BytesSerializer as BytesSerializer
    from rmq_ha.client.rules.serializers import JsonSerializer as JsonSerializer
    from rmq_ha.client.rules.serializers import ProtobufSerializer as ProtobufSerializer
    from rmq_ha.client.rules.serializers import RegisteredSerializer as RegisteredSerializer
    from rmq_ha.client.rules.serializers import Serializer as Serializer
    from rmq_ha.client.rules.serializers import TextSerializer as TextSerializer
    from rmq_ha.client.rules.settings import ClientConfig as ClientConfig
    from rmq_ha.client.rules.settings import ProducerConfig as ProducerConfig
    from rmq_ha.client.rules.subscriptions import MessageSelector as MessageSelector
    from rmq_ha.client.send.producer import Producer as Producer
    from rmq_ha.client.send.request_reply import create_reply_message as create_reply_message
    from rmq_ha.client.send.tracing import Tracer as Tracer
    from rmq_ha.client.send.transactions import LocalTransactionState as LocalTransactionState
    from rmq_ha.client.send.transactions import TransactionListener as TransactionListener
    from rmq_ha.client.send.transactions import TransactionProducer as TransactionProducer
    from rmq_ha.client.send.transactions import TransactionSendResult as TransactionSendResult
else:
    # Type checkers and editors read the imports above, Python these names; a test compares them.
    _NAMES = {
        "rmq_ha.client.blocking": "BlockingClient",
        "rmq_ha.client.blocking_consumers": "BlockingConsumer BlockingPullConsumer",
        "rmq_ha.client.blocking_simple": "BlockingSimpleConsumer",
        "rmq_ha.client.blocking_transactions": "BlockingTransactionListener"
        " BlockingTransactionProducer",
        "rmq_ha.client.connecting": "connect",
        "rmq_ha.client.consume.consume_service": "ConsumeHook ConsumeMessageContext",
        "rmq_ha.client.consume.consume_tracing": "ConsumeTracer",
        "rmq_ha.client.rules.consumer_settings": "ConsumeFromWhere LitePullConsumerConfig"
        " MessageModel PullConsumerConfig PushConsumerConfig SimpleConsumerConfig",
        "rmq_ha.client.rules.errors": "BatchFailed BrokerRefused DuplicatesPossible"
        " ForkedClient IllegalMessage MQClientError NoMaster NoNameServer NoRoute NoTimers"
        " NotStarted ReceiptExpired RequestTimeout SendFailed SendTimeout TooManyInFlight",
        "rmq_ha.client.connection.hooks": "Delivery DeliveryHook SendContext SendHook",
        "rmq_ha.client.connection.instance": "ClientInstance",
        "rmq_ha.client.rules.listening": "ConcurrentListener ConsumeConcurrentlyContext"
        " ConsumeConcurrentlyStatus ConsumeOrderlyContext ConsumeOrderlyStatus OrderlyListener",
        "rmq_ha.client.consume.lite_pull_consumer": "LitePullConsumer",
        "rmq_ha.client.rules.messages": "Message MessageExt MessageQueue PullResult PullStatus"
        " SendResult SendStatus UndecodableBody",
        "rmq_ha.client.consume.offsets": "OffsetStore ReadOffsetType",
        "rmq_ha.client.send.producer": "Producer",
        "rmq_ha.client.consume.pull_api": "Filter",
        "rmq_ha.client.consume.pull_consumer": "PullConsumer",
        "rmq_ha.client.consume.push_consumer": "PushConsumer",
        "rmq_ha.client.consume.simple_consumer": "SimpleConsumer",
        "rmq_ha.client.rules.queue_choice": "Selector select_by_hash",
        "rmq_ha.client.rebalance.consistent_hash": "AllocateConsistentHash",
        "rmq_ha.client.rebalance.machine_rooms": "AllocateByMachineRoom AllocateMachineRoomNearby",
        "rmq_ha.client.rebalance.strategies": "AllocateAveragely AllocateAveragelyByCircle"
        " AllocateByConfig AllocateStrategy",
        "rmq_ha.client.send.request_reply": "create_reply_message",
        "rmq_ha.client.rules.serializers": "AvroSerializer BytesSerializer JsonSerializer"
        " ProtobufSerializer RegisteredSerializer Serializer TextSerializer",
        "rmq_ha.client.rules.settings": "ClientConfig ProducerConfig",
        "rmq_ha.base.remoting.signing": "Credentials",
        "rmq_ha.client.rules.subscriptions": "MessageSelector",
        "rmq_ha.client.send.tracing": "Tracer",
        "rmq_ha.client.send.transactions": "LocalTransactionState TransactionListener"
        " TransactionProducer TransactionSendResult",
        "rmq_ha.base.errors": "ConfigurationError RemotingConnectError RemotingError"
        " RemotingTimeout RmqHaError",
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
    # The names of a newcomer stand first, all others in groups, as in docs/client.md.
    _GROUPS = {
        "Begin here": "connect Message MessageExt SendResult Producer PushConsumer BlockingClient"
        " BlockingConsumer ClientConfig MQClientError",
        "Modules": "aio blocking",
        "Settings": "ProducerConfig PushConsumerConfig LitePullConsumerConfig"
        " PullConsumerConfig SimpleConsumerConfig Credentials ConsumeFromWhere MessageModel",
        "Other consumers, and the client below": "SimpleConsumer LitePullConsumer PullConsumer"
        " BlockingSimpleConsumer BlockingPullConsumer ClientInstance",
        "Transactions": "TransactionProducer TransactionListener LocalTransactionState"
        " TransactionSendResult BlockingTransactionProducer"
        " BlockingTransactionListener",
        "Listeners": "ConcurrentListener ConsumeConcurrentlyContext ConsumeConcurrentlyStatus"
        " OrderlyListener ConsumeOrderlyContext ConsumeOrderlyStatus",
        "Queues, choices and answers": "MessageQueue SendStatus PullResult"
        " PullStatus Selector select_by_hash"
        " MessageSelector Filter create_reply_message OffsetStore ReadOffsetType",
        "Sharing queues out": "AllocateStrategy AllocateAveragely AllocateAveragelyByCircle"
        " AllocateByConfig AllocateByMachineRoom AllocateMachineRoomNearby"
        " AllocateConsistentHash",
        "Bodies": "Serializer BytesSerializer TextSerializer JsonSerializer AvroSerializer"
        " ProtobufSerializer RegisteredSerializer UndecodableBody",
        "Hooks": "DeliveryHook Delivery SendHook SendContext ConsumeHook"
        " ConsumeMessageContext Tracer ConsumeTracer",
        "Errors": "BatchFailed BrokerRefused ConfigurationError DuplicatesPossible"
        " ForkedClient IllegalMessage NoMaster NoNameServer NoRoute NoTimers NotStarted"
        " ReceiptExpired RemotingConnectError RemotingError RemotingTimeout RequestTimeout"
        " RmqHaError SendFailed SendTimeout TooManyInFlight",
    }
    __all__ = [name for names in _GROUPS.values() for name in names.split()]

    def __getattr__(name):
        home = _HOMES.get(name)
        if home is not None:
            value = getattr(import_module(home), name)
        elif name in __all__:
            value = import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
