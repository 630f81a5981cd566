"""The master secret is rotated under load: all sends are accepted, all webhooks signed, the old secret is useless."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.load import Load, check_all_arrived
from tests.journeys.test_webhooks import Hooks, HookService, waiting
from tests.proof.size import DATABASES
from tests.service import until

PHONE, CODE = "+15005550006", "000000"


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    receiver = Hooks(tmp_path)
    yield receiver
    receiver.stop()


@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
def test_secret_rotation_under_load_interrupts_nothing(database_url: str, tmp_path: Path, hooks: Hooks) -> None:
    with HookService(database_url, tmp_path / "data") as service:
        service.apply()
        service.subscribe(tmp_path, hooks.start() + "/")
        for _ in range(2):  # two processes with the old secret
            service.start()
        verification = service.post("/v1/verify", {"to": PHONE}).json["id"]
        (before,) = json.loads(service.run("secret", "show", "--json").stdout)["encrypted"]
        with Load(service, clients=2) as load:
            for _ in range(2):
                load.more(20)
                done = service.run("secret", "rotate")
                assert done.returncode == 0, done.stderr
            load.more(20)
        assert [(a.status, a.raw) for a in load.refused] == []
        assert load.broken == []
        check_all_arrived(database_url, load.accepted)
        counted = json.loads(service.run("secret", "show", "--json").stdout)["encrypted"]
        now, *others = counted.values()
        assert now >= 2 and set(others) <= {0}  # the webhook's secret, the kept keys, and the domain's DKIM keys
        assert before not in counted
        findings = json.loads(service.run("doctor", "--json").stdout)["findings"]
        found = {finding["check"]: finding["level"] for finding in findings}
        assert (found["encryption"], found["audit log"], found["secret"]) == ("ok", "ok", "ok")
        until(lambda: waiting(service) == 0)
        assert len(hooks.told()) >= len(load.accepted)  # each with its signature

        # A process started later needs only the new secret, and uses the keys derived from the first.
        (tmp_path / "data" / "secret.old").unlink()
        service.start()
        checked = service.post(f"/v1/verify/{verification}/check", {"code": CODE})
        assert checked.json["status"] == "verified"
        seen = len(hooks.told())
        with Load(service, clients=1, name="later") as later:
            later.more(5)
        until(lambda: len(hooks.told()) >= seen + 5)
