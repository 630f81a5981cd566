"""Webhook signatures, verified by hand-written HMAC and by other libraries: standardwebhooks, svix, and npm's."""

import base64
import hashlib
import hmac
import json
import subprocess
import time
from pathlib import Path

import pytest
import standardwebhooks
import svix

from heliograph.webhooks.policy.signature import make_secret, signature_headers
from tests.npm import install

OLD, NEW, OTHER = (make_secret(bytes(range(start, start + 24))) for start in (0, 100, 200))
ID = "evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA"
BODIES = [b'{"id":"evt_1"}', '{"text":"Zürich 注文 🎉"}'.encode(), b"{}", b'{"a":"%s"}' % (b"x" * 20_000)]
ROTATIONS = {"one secret": [NEW], "two secrets": [NEW, OLD]}


def now() -> int:
    return int(time.time())  # the libraries compare the timestamp with the current time


# -- judge: by hand ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("secrets", ROTATIONS.values(), ids=ROTATIONS)
@pytest.mark.parametrize("body", BODIES, ids=["ascii", "unicode", "empty", "large"])
def test_webhook_signature_matches_a_manual_hmac(body: bytes, secrets: list[str]) -> None:
    t = 1_794_735_000
    v1 = [hmac.new(s.encode(), f"{t}.".encode() + body, hashlib.sha256).hexdigest() for s in secrets]
    keys = [base64.b64decode(s.removeprefix("whsec_")) for s in secrets]
    sums = [hmac.new(key, f"{ID}.{t}.".encode() + body, hashlib.sha256).digest() for key in keys]
    signature = " ".join(f"v1,{base64.b64encode(item).decode()}" for item in sums)
    assert signature_headers(secrets, ID, t, body) == {
        "X-Service-Signature": f"t={t}" + "".join(f",v1={item}" for item in v1),
        "webhook-id": ID,
        "webhook-timestamp": str(t),
        "webhook-signature": signature,
        "svix-id": ID,
        "svix-timestamp": str(t),
        "svix-signature": signature,
    }


def test_webhook_secret_is_base64_of_24_or_more_bytes() -> None:
    assert make_secret(bytes(24)) == "whsec_" + "A" * 32
    assert make_secret(bytes(32)) == "whsec_" + "A" * 43 + "="
    with pytest.raises(ValueError, match="24 random bytes, not 23"):
        make_secret(bytes(23))


# -- judges: libraries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [standardwebhooks, svix], ids=["standardwebhooks", "svix"])
@pytest.mark.parametrize("body", BODIES, ids=["ascii", "unicode", "empty", "large"])
def test_webhook_signature_is_verified_by_python_libraries(library: object, body: bytes) -> None:
    created = signature_headers([NEW, OLD], ID, now(), body)
    assert library_says(library, NEW, created, body)
    assert library_says(library, OLD, created, body)
    assert not library_says(library, OTHER, created, body)
    assert not library_says(library, NEW, created, body + b" ")
    assert not library_says(library, NEW, {**created, "webhook-id": "evt_other", "svix-id": "evt_other"}, body)
    assert not library_says(library, NEW, signature_headers([NEW], ID, now() - 301, body), body)


def library_says(library: object, secret: str, made: dict[str, str], body: bytes) -> bool:
    try:
        library.Webhook(secret).verify(body, made)  # type: ignore[attr-defined]
    except (standardwebhooks.WebhookVerificationError, svix.WebhookVerificationError):
        return False
    return True


NPM = """
const { Webhook } = require('standardwebhooks');
const said = JSON.parse(require('fs').readFileSync(0)).map(([secret, headers, body]) => {
  try { new Webhook(secret).verify(body, headers); return true; } catch { return false; }
});
console.log(JSON.stringify(said));
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("standardwebhooks"), "webhooks are not judged by npm's standardwebhooks")


def test_webhook_signature_is_verified_by_npm_packages(package: Path) -> None:
    body = BODIES[1]
    created = signature_headers([NEW, OLD], ID, now(), body)
    old = signature_headers([NEW], ID, now() - 301, body)
    cases = [
        (NEW, created, body),
        (OLD, created, body),
        (OTHER, created, body),
        (NEW, created, body + b" "),
        (NEW, old, body),
    ]
    requested = json.dumps([(secret, headers_, text.decode()) for secret, headers_, text in cases])
    done = subprocess.run(["node", "-e", NPM], cwd=package, input=requested.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == [True, True, False, False, False]
