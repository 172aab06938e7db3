"""Between processes: pairs, name servers, controllers, clocks."""

from __future__ import annotations

import signal
import subprocess

from tests.mistakes.bench import Bench, Running
from tests.mistakes.mistake import Room

BETWEEN = Room("Between servers")


def namesrv(bench: Bench, port: str = "namesrv") -> Running:
    name = f"n-{port}"
    bench.write(
        f"{name}.properties",
        f"listenPort={bench.port[port]}\nbindAddress=127.0.0.1\nkvConfigPath={name}.json\n",
    )
    return bench.serve("rmqha-namesrv", "-c", f"{name}.properties")


def settings(bench: Bench, role: str, number: int, more: str = "") -> str:
    return f"namesrvAddr={bench.at('namesrv')}\nbrokerRole={role}\nbrokerId={number}\n{more}"


def master(bench: Bench, more: str = "", role: str = "SYNC_MASTER") -> Running:
    return bench.broker(settings(bench, role, 0, more), "a.properties", "broker")


def slave(bench: Bench, more: str = "", name: str = "b.properties") -> Running:
    """Started, and what is typed."""
    bench.broker_file(settings(bench, "SLAVE", 1, more), name, "slave")
    return bench.start("rmqha-broker", "-c", name)


def whole(bench: Bench) -> tuple[Running, Running]:
    namesrv(bench)
    first = master(bench)
    second = slave(bench)
    first.until("caught up")
    return first, second


@BETWEEN.add(
    "two brokers, one store",
    cause="locked: another broker has this store open",
    fix="stop it first",
    then="A",
)
def one_store(bench: Bench) -> str:
    bench.broker()
    bench.write(
        "c.properties",
        (bench.directory / "b.properties").read_text()
        + f"listenPort={bench.port['slave']}\nembeddedNamesrvPort={bench.port['second']}\n",
    )
    running = bench.start("rmqha-broker", "-c", "c.properties")
    running.until("serving:")
    return running.end()


@BETWEEN.add(
    "a broker that cannot start: the routes stay as they are",
    cause="127.0.0.1:10911",
    fix="exit code 0",
    then="C",
    held="tests/live/test_second_master.py::test_one_of_its_ports_is_taken",
)
def routes_stay(bench: Bench) -> str:
    bench.broker()
    bench.admin("topic", "create", "T", "--queues", "1")
    bench.broker_file(f"namesrvAddr={bench.at('namesrv')}\n", "c.properties")
    second = bench.start("rmqha-broker", "-c", "c.properties")
    second.until("cannot start")
    second.end()
    return bench.admin("route", "T")


@BETWEEN.add(
    "a slave with a wrong haMasterAddress",
    cause="not following the master",
    fix="haListenPort",
    then="A",
)
def wrong_address(bench: Bench) -> str:
    namesrv(bench)
    master(bench)
    running = slave(bench, "haMasterAddress=127.0.0.1:9\n")
    running.until("not following")
    return running.end()


@BETWEEN.add(
    "a slave given its master's port for clients",
    cause="closed the connection",
    fix="its haListenPort",
    then="A/B",
)
def client_port(bench: Bench) -> str:
    namesrv(bench)
    master(bench)
    running = slave(bench, f"haMasterAddress={bench.at('broker')}\n")
    running.until("closed the connection")
    return running.end()


@BETWEEN.add(
    "a slave with a wrong brokerName",
    cause="broker-b",
    fix="brokerName",
    then="C",
    held="tests/unit/ops/admin/doctor/test_identity.py::test_a_slave_whose_name_is_spelt_otherwise",
)
def wrong_name(bench: Bench) -> str:
    namesrv(bench)
    master(bench)
    slave(bench, "brokerName=broker-b\n").until("serving:")
    return bench.until(lambda: bench.admin("doctor", "--look-again", "0"), "wrong-broker-name")


@BETWEEN.add(
    "a slave with a wrong brokerName; its own log",
    cause="no name server knows a master named broker-b",
    fix="brokerName",
    then="C",
    held="tests/unit/server/broker/test_registration.py::test_a_slave_that_stays_alone_says_so",
)
def wrong_name_said(bench: Bench) -> str:
    namesrv(bench)
    master(bench)
    running = slave(bench, "brokerName=broker-b\n")
    running.until("no name server knows a master")
    return running.end()


@BETWEEN.add(
    "two slaves with the same id",
    cause="both register as broker-a/1",
    fix="another brokerName or brokerId",
    then="C",
    held="tests/unit/server/namesrv/test_processors.py::test_two_slaves_of_one_id_are_named_with_what_to_do",
)
def same_id(bench: Bench) -> str:
    server = namesrv(bench)
    master(bench)
    slave(bench).until("serving:")
    bench.broker_file(settings(bench, "SLAVE", 1), "c.properties", "slave")
    text = (bench.directory / "c.properties").read_text()
    bench.write(
        "c.properties", text.replace(f"={bench.port['slave']}\n", f"={bench.port['slave'] + 4}\n")
    )
    bench.start("rmqha-broker", "-c", "c.properties").until("serving:")
    return server.until("TWO BROKERS")


@BETWEEN.add(
    "two masters of one name",
    cause="two-masters",
    fix="rmqha-admin demote",
    held="tests/unit/ops/admin/doctor/test_identity.py::test_two_masters",
)
def two_masters(bench: Bench) -> str:
    namesrv(bench)
    namesrv(bench, "second")
    master(bench)
    bench.broker(
        f"namesrvAddr={bench.at('second')}\nbrokerRole=ASYNC_MASTER\nbrokerId=0\n",
        "b.properties",
        "slave",
    )
    both = f"{bench.at('namesrv')};{bench.at('second')}"
    return bench.run("rmqha-admin", "doctor", "-n", both, "--look-again", "0")


@BETWEEN.add(
    "an old master started again as it was after a fail-over",
    cause="leads broker-a, and this broker was started as its master",
    fix="rmqha-admin demote",
    then="C",
    held="tests/live/test_fail_over.py::test_a_machine_that_reboots_after_its_slave_was_promoted",
)
def old_master(bench: Bench) -> str:
    first, second = whole(bench)
    first.end(signal.SIGKILL)
    second.end()
    bench.broker(settings(bench, "SYNC_MASTER", 0), "b.properties", "slave")
    returned = bench.start("rmqha-broker", "-c", "a.properties")
    returned.until("rmqha-admin demote")
    return returned.end()


@BETWEEN.add(
    "the name server is down when a broker starts",
    cause="clients that use only this one do not find this broker",
    fix="until it answers again",
    then="A",
)
def namesrv_down(bench: Bench) -> str:
    bench.broker_file(settings(bench, "SYNC_MASTER", 0))
    running = bench.start("rmqha-broker", "-c", "b.properties")
    running.until("until it answers again")
    return running.end()


@BETWEEN.add(
    "the name server comes up after the pair: in sync again at once",
    cause="following the master",
    fix="caught up",
    then="C",
    held="tests/unit/server/broker/test_registration.py::test_a_slave_without_a_master_asks_again",
)
def namesrv_late(bench: Bench) -> str:
    running = slave(bench)
    first = bench.broker(settings(bench, "SYNC_MASTER", 0), "a.properties", "broker")
    running.until("serving:")
    namesrv(bench)
    running.until("following the master")
    return first.until("caught up") + running.said


@BETWEEN.add(
    "a slave that hangs (SIGSTOP)",
    cause="dropped: the slave said nothing",
    fix="look at the slave and at the network",
    then="A",
    held="tests/unit/server/replication/classic/test_service.py::test_silent",
)
def frozen(bench: Bench) -> str:
    first, second = whole(bench)
    second.tell(signal.SIGSTOP)
    return first.until("said nothing for")


@BETWEEN.add(
    "an old master started again as a slave after a fail-over",
    cause="set aside",
    fix="rmqha-admin store dump",
    then="C",
    held="tests/live/test_diverged.py::test_the_old_master_returns_as_slave_with_an_end_of_its_own",
)
def diverged(bench: Bench) -> str:
    first, second = whole(bench)
    bench.admin("topic", "create", "T", "--queues", "1")
    bench.admin("produce", "T", "both")
    second.end()
    bench.admin("produce", "T", "alone")
    first.end(signal.SIGKILL)
    bench.broker(settings(bench, "ASYNC_MASTER", 0), "b.properties", "slave")
    bench.until(lambda: bench.admin("produce", "T", "new"), "exit code 0")
    bench.broker_file(settings(bench, "SLAVE", 1), "a.properties", "broker")
    running = bench.start("rmqha-broker", "-c", "a.properties")
    running.until("set aside")
    return running.end()


@BETWEEN.add(
    "a slave whose clock is an hour ahead",
    cause="clocks-apart",
    fix="NTP",
    then="C",
    held="tests/unit/ops/admin/doctor/test_resources.py::test_a_clock_that_somebody_set",
)
def clock(bench: Bench) -> str:
    namesrv(bench)
    master(bench)
    bench.broker_file(
        settings(bench, "SLAVE", 1, f"metricsPort={bench.port['metrics']}\n"),
        "b.properties",
        "slave",
    )
    running = bench.start("rmqha-broker", "-c", "b.properties", environ=shifted(bench, hours=1))
    running.until("serving:")
    return bench.until(lambda: bench.admin("doctor", "--look-again", "0"), "clocks-apart")


def shifted(bench: Bench, *, hours: int) -> dict[str, str]:
    """The environment of a process whose wall clock is so many hours ahead; negative: behind."""
    source = bench.write(
        "clock.c",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <time.h>\n#include <sys/time.h>\n"
        "static int (*real)(clockid_t, struct timespec *);\n"
        "int clock_gettime(clockid_t c, struct timespec *t) {\n"
        ' if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");\n'
        " int r = real(c, t); if (c == CLOCK_REALTIME) "
        f"t->tv_sec += {hours * 3600}; return r; }}\n"
        "time_t time(time_t *t) { struct timespec n; clock_gettime(CLOCK_REALTIME, &n);"
        " if (t) *t = n.tv_sec; return n.tv_sec; }\n"
        "int gettimeofday(struct timeval *t, void *z) { struct timespec n;"
        " clock_gettime(CLOCK_REALTIME, &n); t->tv_sec = n.tv_sec; t->tv_usec = n.tv_nsec / 1000;"
        " return 0; }\n",
    )
    command = ["cc", "-shared", "-fPIC", "-o", "clock.so", source, "-ldl"]
    subprocess.run(command, cwd=bench.directory, check=True)
    return {"LD_PRELOAD": bench.path("clock.so")}


@BETWEEN.add(
    "SIGUSR1 to a broker that has no log file",
    cause="ready",
    fix="200",
    then="C",
)
def sigusr1(bench: Bench) -> str:
    running = bench.broker(f"metricsPort={bench.port['metrics']}\n")
    running.tell(signal.SIGUSR1)
    bench.typed = "kill -USR1 PID"
    text = bench.until(lambda: bench.get("/healthz"), "200", 30)
    bench.typed = "kill -USR1 PID; curl http://127.0.0.1:5557/healthz"
    return text


@BETWEEN.add(
    "a broker in controller mode whose controller does not answer",
    cause="controller 127.0.0.1:9 does not answer",
    fix="controllerAddr",
)
def controller_down(bench: Bench) -> str:
    bench.broker_file(
        "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9\nallAckInSyncStateSet=true\n"
        f"metricsPort={bench.port['metrics']}\n"
    )
    running = bench.start("rmqha-broker", "-c", "b.properties")
    running.until("does not answer")
    return running.end()


@BETWEEN.add(
    "a name server's port as controllerAddr",
    cause="is no controller",
    fix="controllerAddr",
)
def not_a_controller(bench: Bench) -> str:
    namesrv(bench)
    bench.broker_file(
        f"enableControllerMode=true\ncontrollerAddr={bench.at('namesrv')}\n"
        f"allAckInSyncStateSet=true\nnamesrvAddr={bench.at('namesrv')}\n"
    )
    running = bench.start("rmqha-broker", "-c", "b.properties")
    running.until("is no controller")
    return running.end()
