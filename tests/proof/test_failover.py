"""P24: the primary of a cluster is killed, hung, cut off or switched over under load."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.journeys.load import Load, ask_database, check_books, finished
from tests.proof.cluster import Cluster, Node
from tests.proof.size import report, rounds
from tests.service import Service, until

FAULTS = ("kill", "hang", "cut off", "switchover", "kill", "hang", "cut off", "switchover", "kill", "hang")
AFTER_S = 3.0  # from when the cluster takes writes again
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
    primary.switch_to(cluster.other(primary))
    return lambda: None


def test_database_failover_loses_nothing_and_ends_no_process(tmp_path: Path) -> None:
    with Cluster() as cluster, Service(cluster.url, tmp_path) as service:
        service.apply()
        running = [service.start(role) for role in ("api", "api", "worker", "worker")]
        accepts: list[float] = []

        def is_ready() -> bool:
            return all(service.get("/readyz", key=None, port=port).status == 200 for port in service.ports)

        with Load(service) as load:
            for number in rounds("failover", len(FAULTS)):
                fault, primary = FAULTS[number], cluster.primary
                load.more(50)
                began = time.monotonic()
                mend = do(fault, cluster, primary)
                until(cluster.other(primary).leads, LEASE_S)
                failed_over = time.monotonic() - began
                until(is_ready, LEASE_S)
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
