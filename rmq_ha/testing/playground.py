"""A prompt on a simulated pair: `python -m rmq_ha.testing.playground`; docs/testing.md shows it."""

import argparse
import code
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from rmq_ha.client import ConsumeConcurrentlyStatus, Message, Producer, PushConsumer, SendResult
from rmq_ha.testing.client_world import ClientWorld

BANNER = """\
A SYNC_MASTER, its slave and a name server in this process, from seed {seed}. Time stands still
until you wind it, or wait for something.

  send("Orders", "4711")     send, and wait for the answer; delay_level=3, keys="k", tags="t"
  consume("Orders")          a consumer that prints what it gets, in time
  wind(60)                   60 s pass; timedelta(hours=2)
  state()                    what each machine is, and how far its log is
  messages("Orders")         what the topic holds; "%DLQ%group", too
  kill_master() start_master() pause() resume() fail_over() rejoin()
  cut("client-3", "broker-1") heal()
  world                      a `ClientWorld`, for the rest; world.world: the simulator
"""


class Playground:
    """
    The commands of the prompt; each public method is one.

    :param say: prints a line.
    """

    def __init__(self, seed: int, say: Callable[[str], object]) -> None:
        self.world = ClientWorld(seed, pair=True)
        self._say = say
        self._producer: Producer | None = None

    def words(self) -> dict[str, Any]:
        """Return the commands by name."""
        own = {name: getattr(self, name) for name in dir(self) if not name.startswith("_")}
        world = "kill_master", "start_master", "pause", "resume", "fail_over", "rejoin"
        own.update({name: getattr(self.world, name) for name in world}, timedelta=timedelta)
        return {name: value for name, value in own.items() if name != "words"}

    def send(
        self, topic: str, body: str | bytes, delay_level: int = 0, tags: str = "", keys: str = ""
    ) -> SendResult:
        """Send a message, and let time pass until the answer comes."""
        if self._producer is None:
            self._producer = Producer(self.world.client())
            self.world.wait(self._producer.start())
        data = body.encode() if isinstance(body, str) else body
        message = Message(topic, data, tags=tags, keys=keys, delay_time_level=delay_level)
        return self.world.wait(self._producer.send(message))

    def consume(self, topic: str, group: str = "playground") -> PushConsumer:
        """Print each message of a topic when it comes; the consumer's `stop()` ends that."""
        consumer = PushConsumer(self.world.client(), group)
        consumer.subscribe(topic)

        def listen(messages: Sequence[Any], context: object) -> ConsumeConcurrentlyStatus:
            for message in messages:
                place = f"{topic} {message.queue_id}/{message.queue_offset}"
                self._say(f"{self.now():9.3f} s  {place}: {message.body!r}")
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        consumer.register_message_listener(listen)
        self.world.wait(consumer.start())
        return consumer

    def wind(self, time: float | timedelta) -> None:
        """Let time pass."""
        self.world.wind(time)

    def now(self) -> float:
        """Simulated seconds since the beginning."""
        return self.world.world.clock.seconds()

    def messages(self, topic: str) -> list[bytes]:
        """Return the bodies of a topic's messages."""
        return [message.body for message in self.world.messages(topic)]

    def state(self) -> None:
        """Print each machine with its role and the end of its log."""
        self._say(f"{self.now():.3f} s")
        for name, line in self.world.state().items():
            self._say(f"  {name}: {line}")

    def cut(self, machine: str, other: str) -> None:
        """Lose all segments between two machines, in both directions."""
        self.world.world.network.partition(machine, other)

    def heal(self) -> None:
        """End all cuts, so that machines reach each other again; segments that TCP kept arrive."""
        self.world.world.network.heal()


def main() -> None:
    """Open the prompt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of all that chance decides")
    seed = parser.parse_args().seed
    playground = Playground(seed, print)
    code.interact(BANNER.format(seed=seed), local=playground.words(), exitmsg="")


if __name__ == "__main__":
    main()
