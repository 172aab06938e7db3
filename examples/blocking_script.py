"""Send, and read everything back from several processes: no reactor, and forks are fine."""

import multiprocessing

from rmq_ha.client import BlockingClient, Message, MessageQueue

TOPIC = "Script"


def count(client: BlockingClient, queue: MessageQueue, start: int, stop: int) -> int:
    return sum(1 for _ in client.messages(queue, start, stop))


def main() -> None:
    with BlockingClient() as client:  # NAMESRV_ADDR
        sent = [client.send(Message(TOPIC, f"line {number}".encode())) for number in range(20)]
        print(f"{len(sent)} sent, the last one is {sent[-1].msg_id}")
        ranges = [
            (client, queue, client.min_offset(queue), client.max_offset(queue))
            for queue in client.queues(TOPIC)
        ]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(f"{sum(pool.starmap(count, ranges))} read by forked processes")


if __name__ == "__main__":
    main()
