"""Two API processes and two workers on one PostgreSQL keep the same limits as one process."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heliograph.bootstrap import open_store
from heliograph.settings import Settings
from tests.conftest import fresh_database
from tests.journeys.load import Load, ask_database, check_sent_once, email, finished
from tests.proof.size import report, rounds, size
from tests.service import TOKENS, Answer, Service, until

WORKERS = (2, 3)  # numbers of processes and slots, in starting order


@pytest.fixture(scope="module")
def cluster(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(fresh_database(postgres), tmp_path_factory.mktemp("cluster")) as service:
        service.apply()
        for role in ("api", "api", "worker", "worker"):
            service.start(role)
        yield service


def at_once(cluster: Service, path: str, bodies: list[Any], **options: Any) -> list[Answer]:
    """Send the requests concurrently, alternating between both API processes."""

    def post(place: tuple[int, Any]) -> Answer:
        number, body = place
        return cluster.post(path, body, port=cluster.ports[number % 2], **options)

    with ThreadPoolExecutor(32) as pool:
        return list(pool.map(post, enumerate(bodies)))


def check_arrived(cluster: Service, load: Load) -> None:
    finished(cluster.database)
    arrived = ask_database(cluster.database, "SELECT id FROM message WHERE status = 'delivered'")
    assert set(load.accepted.values()) - {id_ for (id_,) in arrived} == set()
    check_sent_once(cluster.database)


def test_cluster_sends_no_message_twice(cluster: Service) -> None:
    with Load(cluster) as load:
        load.more(60)
    check_arrived(cluster, load)


def test_cluster_creates_one_message_per_idempotency_key(cluster: Service) -> None:
    before = ask_database(cluster.database, "SELECT count(*) FROM message")[0][0]
    for number in range(3):
        key = {"Idempotency-Key": f"both {number}"}
        answers = at_once(cluster, "/v1/emails", [email(f"both {number}")] * 20, headers=key)
        told = Counter((a.status, a.code) for a in answers)
        assert set(told) <= {(202, None), (409, "idempotency_request_in_progress")}
        taken = [a for a in answers if a.status == 202]
        assert len({a.raw for a in taken}) == 1
        assert sum("idempotency-replayed" not in a.headers for a in taken) == 1
    assert ask_database(cluster.database, "SELECT count(*) FROM message") == [(before + 3,)]


def test_concurrent_sends_never_overdraw_the_credit(cluster: Service) -> None:
    body, races = {"to": "+14155550100", "template_id": "tpl_poor_sms"}, size("P4 races")
    for race in rounds("P4", races):
        if race:
            cluster.add_credit("team_poor", "0.4500")
        answers = at_once(cluster, "/v1/sms", [body] * 64, key="POOR")
        assert Counter((a.status, a.code) for a in answers) == {(202, None): 10, (400, "insufficient_credit"): 54}
        finished(cluster.database)
        me = cluster.get("/v1/me", key="POOR").json
        assert (me["credit"], me["held"]) == ("0.0000", "0.0000")
    report("P4", f"PostgreSQL, two API processes: 64 race for credit for 10, {races} times: exactly 10 each time")


def test_wrong_codes_are_counted_over_both_processes(cluster: Service) -> None:
    started = cluster.post("/v1/verify", {"to": "+15005550005"})
    answers = at_once(cluster, f"/v1/verify/{started.json['id']}/check", [{"code": "123456"}] * 40)
    left = sorted((a.json["remaining_attempts"] for a in answers), reverse=True)
    assert left == [4, 3, 2, 1] + [0] * 36


def test_revoked_key_is_refused_by_both_processes(cluster: Service) -> None:
    assert {cluster.get("/v1/me", key="ACME_PINNED", port=port).status for port in cluster.ports} == {200}
    assert cluster.run("key", "revoke", TOKENS["ACME_PINNED"]).returncode == 0
    until(lambda: {cluster.get("/v1/me", key="ACME_PINNED", port=port).status for port in cluster.ports} == {401})


def test_changed_template_is_used_by_both_processes(cluster: Service, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(
        '[[teams]]\nid = "team_acme"\n[[teams.templates]]\nid = "tpl_offer"\nbody = "A new offer."\n', "utf-8"
    )
    cluster.apply(file)
    body = {"to": "+14155550100", "template_id": "tpl_offer"}

    def shown() -> set[str]:
        return {cluster.post("/v1/whatsapp?dry_run=true", body, port=port).json["body"] for port in cluster.ports}

    until(lambda: shown() == {"A new offer."})


# -- a worker dies with work in hand ----------------------------------------------------------------------------


def claim_as(cluster: Service, seat: int) -> list[str]:
    """Claim messages as the process of this slot, as if it died afterwards; return the ids."""
    name = f"{(cluster.data / 'instance').read_text().strip()}/{seat}"

    async def claim() -> list[str]:
        async with open_store(Settings(database=cluster.database, data=cluster.data), owner=name) as store:
            claims = await store.outbox.claim("email", 10)
            return [claim.message_id for claim in claims if not claim.reports]  # not the simulator's reports

    return asyncio.run(claim())


@contextmanager
def paused(cluster: Service) -> Iterator[None]:
    """Pause delivery during the block, so that new messages wait."""
    assert cluster.run("pause").returncode == 0
    try:
        until(lambda: stays_queued(cluster))
        yield
    finally:
        assert cluster.run("resume").returncode == 0


def stays_queued(cluster: Service) -> bool:
    """Check that the message stays `queued` for longer than the poll interval of the workers."""
    probes = [cluster.post("/v1/emails", email("probe"), port=port).json["id"] for port in cluster.ports]
    time.sleep(0.6)
    return {status(cluster, id_) for id_ in probes} == {"queued"}


def status(cluster: Service, id_: str) -> str:
    return str(cluster.get(f"/v1/emails/{id_}").json["status"])


def test_restarted_worker_resumes_its_claims_at_once(cluster: Service) -> None:
    with paused(cluster):
        cluster.kill(cluster.processes[WORKERS[0]])
        in_hand = claim_as(cluster, WORKERS[0])
    assert in_hand
    cluster.processes[WORKERS[0]] = cluster.start("worker")
    until(lambda: {status(cluster, id_) for id_ in in_hand} == {"delivered"})
    check_sent_once(cluster.database)


def test_claims_of_a_dead_worker_are_taken_over_after_their_lease(cluster: Service) -> None:
    with paused(cluster):
        in_hand = claim_as(cluster, 99)  # a slot that no process will take again
    assert in_hand
    later = cluster.post("/v1/emails", email("later")).json["id"]
    until(lambda: status(cluster, later) == "delivered")
    assert {status(cluster, id_) for id_ in in_hand} <= {"queued", "sending"}  # no process has sent them
    ask_database(cluster.database, "UPDATE outbox SET lease_until = 0 WHERE owner LIKE '%/99'")
    until(lambda: {status(cluster, id_) for id_ in in_hand} == {"delivered"})
    check_sent_once(cluster.database)


def test_worker_killed_under_load_loses_no_message(cluster: Service) -> None:
    with Load(cluster) as load:
        for _ in range(2):
            load.more(20)
            cluster.kill(cluster.processes[WORKERS[1]])
            cluster.processes[WORKERS[1]] = cluster.start("worker")
    check_arrived(cluster, load)


def test_rate_limit_applies_to_both_processes_together(cluster: Service) -> None:
    """Two requests a second and a burst of four; without shared counts, two processes would allow twice as many."""
    began, said = time.monotonic(), []
    while (took := time.monotonic() - began) < 6 or 429 not in said:
        said += [cluster.get("/v1/me", key="SLOW", port=port).status for port in cluster.ports[:2]]
        time.sleep(0.05)
    alone = 4 + 2 * took
    assert min(alone, len(said)) - 3 <= said.count(200) <= 1.5 * alone
