"""Settings as keywords: those of the dataclasses, on every face, in ms; old names go on working."""

import asyncio
import warnings
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client import (
    BlockingClient,
    BlockingConsumer,
    BlockingPullConsumer,
    ClientConfig,
    ConsumeOrderlyContext,
    LitePullConsumer,
    LitePullConsumerConfig,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullConsumerConfig,
    PushConsumer,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from rmq_ha.client.aio import Client, connect
from rmq_ha.client.connecting import connect as connect_with_reactor
from rmq_ha.client.rules import options
from rmq_ha.client.rules.old_spellings import old_names
from rmq_ha.testing.client_world import ClientWorld

NOBODY = "127.0.0.1:1"
PAIRS: list[tuple[Any, Any]] = [
    (ClientConfig, options.ClientOptions),
    (ProducerConfig, options.ProducerOptions),
    (PushConsumerConfig, options.PushConsumerOptions),
    (PullConsumerConfig, options.PullConsumerOptions),
    (LitePullConsumerConfig, options.LitePullConsumerOptions),
    (SimpleConsumerConfig, options.SimpleConsumerOptions),
]
CONFIGS = [config for config, _ in PAIRS]
DURATION = ("interval", "timeout", "millis", "mills", "backoff", "idle", "suspend_max_time")


@pytest.mark.parametrize(("config", "keywords"), PAIRS)
def test_keywords_are_the_settings_with_their_types(config: Any, keywords: Any) -> None:
    settings = get_type_hints(config)
    assert get_type_hints(keywords) == {item.name: settings[item.name] for item in fields(config)}


def test_the_two_kinds_of_a_blocking_client_share_no_name() -> None:
    names = [{item.name for item in fields(kind)} for kind in (ClientConfig, ProducerConfig)]
    assert not names[0] & names[1]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_duration_says_its_unit(config: Any) -> None:
    for item in fields(config):
        if any(word in item.name for word in DURATION):
            assert item.name.endswith("_ms")


@pytest.mark.parametrize(
    ("config", "old"), [(config, old) for config in CONFIGS for old in old_names(config)]
)
def test_an_old_name_is_taken_and_read_with_a_warning_that_names_the_new_one(
    config: Any, old: str
) -> None:
    new, _, unit_ms = config._old_spellings[old]
    with pytest.warns(DeprecationWarning, match=f"write {new}={7 * unit_ms}$") as said:
        made = config(**{old: 7})
    assert said[0].filename == __file__
    assert getattr(made, new) == 7 * unit_ms
    with pytest.warns(DeprecationWarning, match=f"read {new}") as said:
        assert getattr(made, old) == 7
    assert said[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=old):
        assert replace(config(), **{old: 7}) == made
    with pytest.raises(ConfigurationError, match=f"leave {old} out"):
        config(**{old: 7, new: 123_456})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config(**{new: 7})


def test_the_old_name_of_a_context_is_taken_too() -> None:
    context: Any = ConsumeOrderlyContext(MessageQueue("T", "b", 0))
    with pytest.warns(DeprecationWarning, match="write suspend_current_queue_time_ms"):
        context.suspend_current_queue_time_millis = 7
    assert context.suspend_current_queue_time_ms == 7
    with pytest.warns(DeprecationWarning, match="write suspend"):
        assert context.suspend_current_queue_time_millis == 7


def test_asyncio_takes_keywords() -> None:
    async def story() -> None:
        async with connect(NOBODY, namespace="shop") as client:
            assert client.instance.settings == ClientConfig(namesrv_addr=NOBODY, namespace="shop")
            producer = await client.producer(producer_group="orders", max_in_flight=3)
            assert producer.deferred.config.max_in_flight == 3
            shared = PushConsumerConfig(consume_concurrency=4, pull_batch_size=5)
            consumer = client.push_consumer("billing", shared, pull_batch_size=6)
            assert consumer.deferred.config == replace(shared, pull_batch_size=6)
            reader = client.lite_pull_consumer("reports", auto_commit=False)
            assert not reader.deferred.config.auto_commit
            wrong: Any = {"max_in_fligt": 3}
            with pytest.raises(TypeError, match="no setting max_in_fligt: is max_in_flight meant"):
                await client.producer(**wrong)

    asyncio.run(story())


def test_deferreds_and_a_simulated_world_take_keywords() -> None:
    with ClientWorld() as world:
        client = world.client(namespace="shop")
        assert client.settings.namespace == "shop"
        assert Producer(client, max_in_flight=3).config.max_in_flight == 3
        assert PushConsumer(client, "billing", pull_batch_size=6).config.pull_batch_size == 6
        assert not LitePullConsumer(client, "reports", auto_commit=False).config.auto_commit
        with pytest.warns(DeprecationWarning, match="use LitePullConsumer"):
            PullConsumer(client, "tools")


def test_threads_take_keywords() -> None:
    with BlockingClient(NOBODY, namespace="shop", max_message_size=7) as client:
        assert (client.settings.namespace, client.producer.max_message_size) == ("shop", 7)
        wrong: Any = {"nonsense": 1}
        with pytest.raises(TypeError, match=r"no setting nonsense$"):
            BlockingClient(NOBODY, **wrong)
    assert BlockingConsumer("billing", NOBODY, pull_batch_size=6)._config.pull_batch_size == 6
    assert not BlockingPullConsumer("reports", NOBODY, auto_commit=False)._config.auto_commit


def test_what_connect_is_given_by_mistake_is_named() -> None:
    """Name servers in the place of the reactor, or a port alone."""
    wrong: Any = "127.0.0.1:9876"
    with pytest.raises(ConfigurationError, match="takes Twisted's reactor first, not str"):
        connect_with_reactor(wrong)

    async def a_port() -> None:
        port: Any = 9876
        connect(port)

    with pytest.raises(ConfigurationError, match="not with int"):
        asyncio.run(a_port())


def test_a_client_is_not_used_in_a_second_loop() -> None:
    clients: list[Client] = []

    async def make() -> None:
        clients.append(connect(NOBODY))

    async def use() -> None:
        await clients[0].producer()

    asyncio.run(make())
    with pytest.raises(ConfigurationError, match="belongs to another event loop"):
        asyncio.run(use())
