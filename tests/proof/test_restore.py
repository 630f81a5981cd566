"""P16: a backup restores. Taken at random moments under load, it starts with delivery paused and loses nothing."""

import json
import random
import shutil
import subprocess
from base64 import b64encode
from itertools import pairwise
from pathlib import Path

import apsw

from heliograph.cli.backup import copy
from heliograph.storage.rollback_detection import RESTORED_REASON
from tests.conftest import fresh_database
from tests.journeys.load import Load, ask_database, check_all_arrived, check_books
from tests.postgres_server import bin_path
from tests.proof.size import report, rounds, size
from tests.service import Service

STEP_MS = 100  # of simulated messages: some are always under way
OPEN = """SELECT (SELECT sum(held) FROM account),
                 (SELECT coalesce(sum(price), 0) FROM message WHERE charge = 'held')
               + (SELECT coalesce(sum(price), 0) FROM verification WHERE charge = 'held')"""
HANDED_OVER = "SELECT count(*) FROM event WHERE message IS NOT NULL"


def send_sms(service: Service, name: str) -> tuple[str, str]:
    """Something that costs money, beside the free emails of the load."""
    body = {"to": "+14155550123", "template_id": "tpl_sms", "variables": {"parcel": "1"}}
    answer = service.post("/v1/sms", body, headers={"Idempotency-Key": name})
    assert answer.status == 202, answer.raw
    return name, answer.json["id"]


def check_at_rest(url: str, accepted: dict[str, str]) -> int:
    """What is true of a copy that nobody has started yet; answers how much of it is still to be sent."""
    if url.startswith("sqlite"):
        assert ask_database(url, "PRAGMA integrity_check") == [("ok",)]
    check_books(url)
    ((held, still_open),) = ask_database(url, OPEN)
    assert held == still_open
    stored = {id_ for (id_,) in ask_database(url, "SELECT id FROM message")}
    assert set(accepted.values()) <= stored
    ((waiting,),) = ask_database(url, "SELECT count(*) FROM outbox")
    return int(waiting)


def check_paused_then_resume(service: Service, reason: str, accepted: dict[str, str]) -> None:
    """Nothing is handed over until an operator says so, then everything is."""
    ((before,),) = ask_database(service.database, HANDED_OVER)
    ((platform,),) = ask_database(service.database, "SELECT body FROM setting WHERE kind = 'platform'")
    assert '"paused":true' in platform
    assert reason in platform
    name, id_ = send_sms(service, f"after the restore {service.database}")
    assert service.get(f"/v1/sms/{id_}").json["status"] == "queued"
    assert ask_database(service.database, HANDED_OVER) == [(before,)]
    assert service.run("resume").returncode == 0
    check_all_arrived(service.database, accepted | {name: id_})


def test_sqlite_backup_under_load_is_restored(tmp_path: Path) -> None:
    chance = random.Random(16)
    backups: list[tuple[Path, dict[str, str]]] = []
    with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data", STEP_MS) as service:
        service.apply()
        service.start()
        with Load(service, clients=2) as load:
            paid: dict[str, str] = {}
            for number in rounds("P16", size("P16 restores of SQLite")):
                load.more(chance.randint(1, 60))
                paid |= [send_sms(service, f"paid {number}/{n}") for n in range(3)]
                before, folder = dict(load.accepted) | paid, tmp_path / f"backup{number}"
                copy(tmp_path / "heliograph.db", tmp_path / "data", folder)
                backups.append((folder, before))
            load.more(20)
        check_all_arrived(service.database, load.accepted | paid)
    for folder, before in backups:
        restore_sqlite(folder, tmp_path / "data" / "secret", before)
    report(
        "P16", f"SQLite: {len(backups)} backups under load, the last of {len(backups[-1][1])} messages, all restored"
    )


def restore_sqlite(folder: Path, secret: Path, before: dict[str, str]) -> None:
    url = f"sqlite:///{folder / 'heliograph.db'}"
    assert sorted(path.name for path in folder.iterdir()) == ["blobs", "heliograph.db"]
    check_at_rest(url, before)
    shutil.copy(secret, folder)
    # As if it had lain about for two minutes: the claims of the processes that it was taken from have run out.
    file = apsw.Connection(str(folder / "heliograph.db"))
    file.execute("UPDATE outbox SET lease_until = 0 WHERE owner IS NOT NULL")
    file.close()
    with Service(url, folder, step_ms=1) as restored:
        restored.start()
        check_paused_then_resume(restored, "restored from a backup of 20", before)


def test_sqlite_old_file_put_back_is_detected(tmp_path: Path) -> None:
    """Not by `heliograph backup`: the data folder knows that the database was newer."""
    file = tmp_path / "heliograph.db"
    with Service(f"sqlite:///{file}", tmp_path / "data", STEP_MS) as service:
        service.apply()
        service.start()
        with Load(service, clients=2) as load:
            load.more(20)
            before = dict(load.accepted)
            source, copy = apsw.Connection(str(file)), apsw.Connection(str(tmp_path / "copy"))
            with copy.backup("main", source, "main") as copying:
                copying.step(-1)
            copy.close()
            source.close()
            load.more(20)
        assert service.stop() == 0
        (tmp_path / "copy").replace(file)
        check_at_rest(service.database, before)
        service.start()
        check_paused_then_resume(service, RESTORED_REASON, before)


def test_postgres_dump_under_load_is_restored(postgres: str, tmp_path: Path) -> None:
    """The dump goes back into another database; the data folder knows that it is older."""
    chance, dumps = random.Random(16), []
    with Service(fresh_database(postgres), tmp_path / "data", STEP_MS) as service:
        service.apply()
        service.start()
        with Load(service, clients=2) as load:
            for number in rounds("P16", size("P16 restores of PostgreSQL")):
                load.more(chance.randint(1, 60))
                before, file = dict(load.accepted), tmp_path / f"dump{number}.sql"
                subprocess.run([f"{bin_path()}/pg_dump", "-d", service.database, "-f", file], check=True)
                dumps.append((file, before))
            load.more(20)
        assert service.stop() == 0
    for file, before in dumps:
        url = fresh_database(postgres, "template1")
        command = [f"{bin_path()}/psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-f", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        check_at_rest(url, before)
        with Service(url, tmp_path / "data", step_ms=1) as restored:
            restored.start()
            check_paused_then_resume(restored, RESTORED_REASON, before)
            assert restored.stop() == 0
    report("P16", f"PostgreSQL: {len(dumps)} dumps under load, the last of {len(dumps[-1][1])} messages, all restored")


def test_database_is_copied_to_postgresql_and_back_while_mail_is_queued(postgres: str, tmp_path: Path) -> None:
    file = tmp_path / "heliograph.db"
    urls = [f"sqlite:///{file}", fresh_database(postgres, "template1"), f"sqlite:///{tmp_path / 'back.db'}"]
    with Service(urls[0], tmp_path / "data", STEP_MS) as service:
        service.apply()
        service.start()
        large = {"filename": "large.txt", "content": b64encode(bytes(300_000)).decode()}
        body = {"from": "news@acme.test", "to": ["ada@example.com"], "subject": "Large", "text": "Hi"}
        with Load(service, clients=2) as load:
            load.more(40)
            answer = service.post("/v1/emails", body | {"attachments": [large]}, headers={"Idempotency-Key": "large"})
            service.kill()  # messages are queued, and some are being sent
        accepted = dict(load.accepted) | {"large": answer.json["id"]}
    for source, target in pairwise(urls):
        with Service(target, tmp_path / "data", step_ms=1) as copied:
            arguments = ["copy", "--from", source, "--to", target]
            done = copied.run(*arguments)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            assert "both databases are equal" in done.stdout
            refused = copied.run(*arguments)
            assert refused.returncode == 1 and "the target is not empty" in refused.stderr
            check_at_rest(target, accepted)
            findings = json.loads(copied.run("doctor", "--json").stdout)["findings"]
            assert [finding["level"] for finding in findings if finding["check"] == "audit log"] == ["ok"]
            copied.start()
            if target == urls[1]:
                check_paused_then_resume(copied, "copied from another database at 20", accepted)
            ((raw,),) = ask_database(target, "SELECT hash FROM blob")
            assert copied.stop() == 0
    assert (tmp_path / "data" / "blobs" / raw[:2] / raw).stat().st_size == 300_000


def test_copy_refuses_a_running_service_and_wrong_databases(tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'target.db'}"
    with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data") as service:
        service.apply()
        service.start()
        for source, destination, reason in (
            (service.database, target, "a service uses the data folder"),
            (service.database, service.database, "name the same database"),
            (f"sqlite:///{tmp_path / 'missing.db'}", target, "there is no database"),
            ("mysql://localhost/x", target, "expected sqlite:///"),
        ):
            done = service.run("copy", "--from", source, "--to", destination)
            assert done.returncode in (1, 2) and reason in done.stderr
    assert not (tmp_path / "target.db").exists()
