"""A message that is delivered only if the sender's own work succeeds."""

from typing import Any

from twisted.internet.task import react

from rmq_ha.client import LocalTransactionState as State
from rmq_ha.client import Message, MessageExt, ProducerConfig, TransactionProducer, connect

DONE, BALANCE = set[str](), {"alice": 100}


class Transfer:
    def execute_local_transaction(self, message: Message, amount: int) -> State:
        if BALANCE["alice"] < amount:
            return State.ROLLBACK_MESSAGE
        BALANCE["alice"] -= amount
        DONE.add(message.unique_id)
        return State.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> State:
        if message.msg_id in DONE:  # the broker asks when it was not told
            return State.COMMIT_MESSAGE
        return State.ROLLBACK_MESSAGE


async def main(reactor: Any) -> None:
    group = ProducerConfig(producer_group="example-transfers")
    producer = TransactionProducer(connect(reactor), Transfer(), group)
    await producer.start()
    for amount in (60, 60):
        result = await producer.send_in_transaction(Message("Transfers", b"for bob"), amount)
        print(amount, result.local_transaction_state.name)
    await producer.stop()


react(main)
