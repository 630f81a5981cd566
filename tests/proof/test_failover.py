"""P24: the primary of a cluster is killed, hung, cut off or switched over under load."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests import service as services
from tests.journeys.load import Load, ask_database, check_books, finished
from tests.journeys.test_rolling import haproxy
from tests.proof.cluster import Cluster, Node
from tests.proof.send_log import count_sends, program
from tests.proof.size import report, rounds
from tests.proof.watch import Watch, commits, has_failed, is_ready, outage
from tests.service import Service, free_port, until

FAULTS = ("kill", "hang", "cut off", "switchover", "kill", "hang", "cut off", "switchover", "kill", "hang")
FAULTS_OF_THREE = 5 * ("switchover", "switchover", "switchover", "switchover", "kill")
AFTER_S = 3.0  # from when the cluster takes writes again
READY_S = 1.0  # from the first statement that succeeds
SETTLE_S = 1.5  # of watching after everything works again
LEASE_S = 240.0  # claims whose end could not be written are free again within that
TWICE = "SELECT message, type FROM event GROUP BY message, type HAVING count(*) > 1"


def do(fault: str, cluster: Cluster, primary: Node) -> Callable[[], None]:
    """What puts the node right again."""
    if fault == "kill":
        primary.kill()
        return primary.start
    if fault == "hang":
        primary.hang()
        return primary.reset
    if fault == "cut off":
        primary.cut()
        return primary.mend
    primary.switch_to(cluster.synchronous_standby())
    return lambda: None


def any_leads(nodes: list[Node]) -> bool:
    return any(node.leads() for node in nodes)


def test_database_failover_loses_nothing_and_ends_no_process(tmp_path: Path) -> None:
    with Cluster() as cluster, Service(cluster.url, tmp_path) as service:
        service.apply()
        running = [service.start(role) for role in ("api", "api", "worker", "worker")]
        accepts: list[float] = []

        def are_ready() -> bool:
            return all(service.get("/readyz", key=None, port=port).status == 200 for port in service.ports)

        with Load(service) as load:
            for number in rounds("failover", len(FAULTS)):
                fault, primary = FAULTS[number], cluster.primary
                load.more(50)
                began = time.monotonic()
                mend = do(fault, cluster, primary)
                until(partial(any_leads, cluster.others(primary)), LEASE_S)
                failed_over = time.monotonic() - began
                until(are_ready, LEASE_S)
                load.more(1, LEASE_S)
                ready = time.monotonic() - began
                accepts.append(ready - failed_over)
                assert all(process.poll() is None for process in running)
                load.more(50)
                mend()
                cluster.until_whole()
                said = f"the cluster took {failed_over:.1f} s, the service was ready after {ready:.1f} s"
                report("failover", f"{fault}: {said}")
        finished(cluster.url, LEASE_S)
        stored = dict(ask_database(cluster.url, "SELECT id, status FROM message"))
        missing = [id_ for id_ in load.accepted.values() if stored.get(id_) != "delivered"]
        twice = {row[0] for row in ask_database(cluster.url, TWICE)}
        check_books(cluster.url)
        refused = {(answer.status, answer.code) for answer in load.refused}
        report(
            "failover",
            f"{len(FAULTS)} faults, {len(load.accepted)} accepted, {len(missing)} missing, {len(twice)} twice, "
            f"no process died; ready {max(accepts):.1f} s after the cluster at most; "
            f"{len(load.refused)} answered 503, {len(load.broken)} without an answer",
        )
        assert missing == []
        assert refused <= {(503, "service_unavailable")}
        assert max(accepts) <= AFTER_S


def test_failover_of_three_nodes_behind_haproxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process is ready again within READY_S of the cluster's first commit, and nothing is sent twice."""
    monkeypatch.setattr(services, "PROGRAM", program(scale=1, send_s=0.5))
    ports, waits = [free_port(), free_port()], list[float]()
    with (
        Cluster(nodes=3) as cluster,
        Service(cluster.url, tmp_path) as service,
        haproxy(*ports) as proxy,
        ExitStack() as watching,
    ):
        service.apply()
        ask_database(cluster.url, "CREATE TABLE watched AS SELECT 0 AS number")
        running = [service.start(port=port) for port in ports]
        behind_proxy = Service(cluster.url, tmp_path)
        behind_proxy.ports.append(proxy)
        nodes = [watching.enter_context(Watch(commits(node.url))) for node in cluster.nodes]
        processes = [watching.enter_context(Watch(is_ready(service, port))) for port in ports]
        door = watching.enter_context(Watch(is_ready(service, proxy)))
        with Load(behind_proxy, clients=4, pause_s=0.05, retry_s=0.1) as load:
            for number in rounds("failover of three", len(FAULTS_OF_THREE)):
                fault, primary = FAULTS_OF_THREE[number], cluster.primary
                load.more(20)
                began = time.monotonic()
                repair = do(fault, cluster, primary)
                until(partial(any_leads, cluster.others(primary)), LEASE_S)
                until(lambda: all(is_ready(service, port)() for port in [*ports, proxy]), LEASE_S)
                load.more(20, LEASE_S)
                time.sleep(SETTLE_S)
                stopped, recovered = outage(nodes, began)
                ready = [outage([each], began)[1] - recovered for each in processes if has_failed(each, began)]
                served = outage([door], began)[1] - recovered if has_failed(door, began) else 0.0
                waits += ready
                report(
                    "failover",
                    f"three nodes, {fault}: the cluster took {recovered - stopped:.2f} s, the processes were ready "
                    f"{', '.join(f'{wait:+.2f}' for wait in ready) or 'all the time and'} s from its first commit, "
                    f"the proxy {served:+.2f} s; load of the machine {os.getloadavg()[0]:.1f}",
                )
                assert all(process.poll() is None for process in running)
                repair()
                cluster.until_whole(members=2)  # Patroni may take five minutes until a killed primary follows again
        finished(cluster.url, LEASE_S)
        stored = dict(ask_database(cluster.url, "SELECT id, status FROM message"))
        missing = [id_ for id_ in load.accepted.values() if stored.get(id_) != "delivered"]
        times = count_sends(tmp_path)
        twice = [id_ for id_, count in times.items() if count > 1]
        check_books(cluster.url)
    refused = {(answer.status, answer.code) for answer in load.refused}
    report(
        "failover",
        f"three nodes, two processes behind HAProxy, {len(FAULTS_OF_THREE)} faults: {len(load.accepted)} accepted, "
        f"{len(missing)} missing, {len(twice)} sent twice, no process died; ready {max(waits):.2f} s after the "
        f"cluster's first commit at most; {len(load.refused)} answered 503, {len(load.broken)} without an answer",
    )
    assert (missing, twice) == ([], [])
    assert refused <= {(503, "service_unavailable")}
    assert max(waits) <= READY_S
