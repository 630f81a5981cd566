"""DKIM signatures, verified by two independent implementations: dkimpy, and mailauth on Node."""

import hashlib
import json
import os
import random
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dkim as dkimpy
import pybase64
import pytest

from heliograph.carriers.email.mime import build_message
from heliograph.domain.delivery.content import EmailContent, File
from heliograph.domain.limits import KIB, MIB
from heliograph.domain.mail import dkim
from heliograph.domain.mail.dkim import SIGNED_HEADERS, Signer, SigningKey, generate_key, public_record
from tests.fast_crypto import make_real_key
from tests.npm import install

DOMAIN = "acme.test"
TIME_MS = 1_794_735_000_999
KEYS = [
    SigningKey(selector="hg1", algorithm="rsa-sha256", private=generate_key("rsa-sha256")),
    SigningKey(selector="hg2.east", algorithm="ed25519-sha256", private=generate_key("ed25519-sha256")),
]
RECORDS = {f"{key.selector}._domainkey.{DOMAIN}": public_record(key.private) for key in KEYS}
SIGNER = Signer(DOMAIN, KEYS)

PLAIN = b"From: a@acme.test\r\nTo: b@example.com\r\nSubject: Hi\r\nDate: x\r\nMessage-ID: <1@acme.test>\r\n"


def build_mail(**fields: Any) -> tuple[bytes, list[bytes]]:
    values = {"from_name": "Acme", "from_address": "hi@acme.test", "to": ["b@example.com"], "subject": "Hi"}
    content = EmailContent(**values | {"text": "Hi"} | fields)
    mail = build_message(
        content, message_id="eml_1", date_ms=TIME_MS, entropy=bytes(12), open_blob=lambda _: open(os.devnull, "rb")
    )
    return mail.headers, list(mail.body_chunks())


MAILS: dict[str, tuple[bytes, list[bytes]]] = {
    "text": build_mail(),
    "html and attachment": build_mail(
        html="<p>  two  spaces\t\n.</p>",
        attachments=[File(filename="ü.txt", content_type="text/plain", size=3, base64="YWJj")],
    ),
    "wrapped headers": build_mail(
        to=[f"person{i}@department.example.com" for i in range(30)],
        cc=["c@example.com"],
        reply_to="r@example.com",
        subject="注文" * 100,
        from_name="Zürich " * 20,
    ),
    "utf-8 address": build_mail(to=["jörg@example.com"]),
    "empty subject": build_mail(subject=""),
    "white space in headers": (
        b"From:  a@acme.test \t\r\nSUBJECT:\tone \t two\r\n\t three \r\n  four  \r\nTo:\r\n b@example.com\r\n",
        [b"Hi\r\n"],
    ),
    "two of a name": (PLAIN + b"Cc: first@example.com\r\nCc: second@example.com\r\n", [b"Hi\r\n"]),
    "empty body": (PLAIN, []),
    "body of line ends": (PLAIN, [b"\r\n\r\n", b"\r\n"]),
    "body of white space": (PLAIN, [b" \t\r\n", b"  \r\n"]),
    "trailing blank lines": (PLAIN, [b"Hi\r\n\r\n", b"\r\n \t\r\n", b"\r\n"]),
    "no line end at the end": (PLAIN, [b"Hi"]),
    "leading blank lines": (PLAIN, [b"\r\n\r\n Hi\r\n"]),
    "runs of white space": (PLAIN, [b" a \t  b\t\r\n\tc", b" ", b"\t", b" d   ", b"\r", b"\n", b" \r\ne\r\n"]),
    "5 MB in chunks": (PLAIN, [(b"lorem  ipsum \t" * 5 + b"\r\n") * 900] * (5 * MIB // (72 * 900) + 1)),
}


def signed(headers: bytes, body: Iterable[bytes]) -> bytes:
    body = list(body)
    return SIGNER.sign(headers, iter(body), time_ms=TIME_MS) + headers + b"\r\n" + b"".join(body)


def dkimpy_says(mail: bytes, index: int) -> bool:
    judge = dkimpy.DKIM(mail)
    try:
        return bool(
            judge.verify(idx=index, dnsfunc=lambda name, timeout=5: RECORDS[name.decode().rstrip(".")].encode())
        )
    except dkimpy.DKIMException:
        return False


# -- judge: dkimpy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1], ids=["rsa", "ed25519"])
@pytest.mark.parametrize("name", MAILS)
def test_signature_is_verified_by_dkimpy(name: str, index: int) -> None:
    assert dkimpy_says(signed(*MAILS[name]), index)


@pytest.mark.parametrize("index", [0, 1], ids=["rsa", "ed25519"])
@pytest.mark.parametrize("name", SIGNED_HEADERS)
def test_no_signed_field_can_be_added_or_taken_away(name: str, index: int) -> None:
    headers, body = build_mail(cc=["c@example.com"], reply_to="r@example.com")
    mail = signed(headers, body)
    assert dkimpy_says(mail, index)
    assert not dkimpy_says(mail.replace(b"\r\nFrom: ", f"\r\n{name}: forged\r\nFrom: ".encode(), 1), index)
    field = re.compile(rb"(?m)^" + name.encode() + rb": .*\r\n")
    assert not dkimpy_says(field.sub(b"", mail, count=1), index)


@pytest.mark.parametrize("index", [0, 1], ids=["rsa", "ed25519"])
@pytest.mark.parametrize("name", ["Cc", "Reply-To"])
def test_no_absent_field_can_be_added(name: str, index: int) -> None:
    mail = signed(*build_mail())
    assert not dkimpy_says(mail.replace(b"\r\nFrom: ", f"\r\n{name}: forged\r\nFrom: ".encode(), 1), index)


@pytest.mark.parametrize("index", [0, 1], ids=["rsa", "ed25519"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\r\n\r\nHi", b"\r\n\r\nHo"),
        (b"\r\n\r\nHi\r\n", b"\r\n\r\nHi\r\nmore\r\n"),
        (b" t=1", b" t=2"),
        (b"b@example", b"c@example"),
    ],
)
def test_changed_mail_fails_verification(old: bytes, new: bytes, index: int) -> None:
    mail = signed(*build_mail())
    assert old in mail
    assert not dkimpy_says(mail.replace(old, new), index)


# -- judge: mailauth ---------------------------------------------------------------------------------------

MAILAUTH = """
const { dkimVerify } = require('mailauth/lib/dkim/verify');
const { records, mails } = JSON.parse(require('fs').readFileSync(0));
const resolver = async (name, type) => type === 'TXT' && records[name] ? [[records[name]]] : [];
(async () => {
  const said = [];
  for (const mail of mails) {
    const { results } = await dkimVerify(Buffer.from(mail, 'base64'), { resolver });
    said.push(results.map(one => [one.algo, one.status.result]));
  }
  console.log(JSON.stringify(said));
})();
"""


@pytest.fixture(scope="module")
def mailauth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("mailauth"), "DKIM is not judged by mailauth")


def test_signature_is_verified_by_mailauth(mailauth: Path) -> None:
    mails = {name: signed(*mail) for name, mail in MAILS.items()}
    mails["changed"] = mails["text"].replace(b"\r\n\r\nHi", b"\r\n\r\nHo")
    request = {"records": RECORDS, "mails": [pybase64.b64encode(mail).decode() for mail in mails.values()]}
    done = subprocess.run(
        ["node", "-e", MAILAUTH], cwd=mailauth, input=json.dumps(request).encode(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    verdicts = dict(zip(mails, json.loads(done.stdout), strict=True))
    assert {algorithm for algorithm, _ in verdicts.pop("changed")} == {"rsa-sha256", "ed25519-sha256"}
    wrong = {
        name: result
        for name, result in verdicts.items()
        if sorted(result) != [["ed25519-sha256", "pass"], ["rsa-sha256", "pass"]]
    }
    assert wrong == {}


# -- our own expectations ----------------------------------------------------------------------------------


def test_signature_covers_the_expected_fields() -> None:
    fields = SIGNER.sign(*build_mail(), time_ms=TIME_MS)
    assert max(map(len, fields.split(b"\r\n"))) <= 76
    first, second = re.split(r"(?m)^(?=DKIM-Signature: )", fields.decode())[1:]
    for field, key in zip((first, second), KEYS, strict=True):
        tags = dict(tag.strip().split("=", 1) for tag in field.replace("\r\n", "").partition(":")[2].split(";"))
        assert set(tags) == {"v", "a", "c", "d", "s", "t", "h", "bh", "b"}  # no l=, no x=
        assert (tags["a"], tags["s"], tags["d"]) == (key.algorithm, key.selector, DOMAIN)
        assert (tags["c"], tags["t"]) == ("relaxed/relaxed", "1794735000")
        listed = [name.strip() for name in tags["h"].split(":")]
        assert {name: listed.count(name) for name in SIGNED_HEADERS} == {
            name: 1 + (name not in ("Cc", "Reply-To")) for name in SIGNED_HEADERS
        }


def test_body_of_rfc_6376_3_4_5_is_canonicalised() -> None:
    canonical = b" C\r\nD E\r\n"
    assert dkim.hash_body([b" C \r\nD \t E\r\n\r\n\r\n"]) == hashlib.sha256(canonical).digest()


def test_body_hash_does_not_depend_on_chunks() -> None:
    rolls = random.Random(3)
    pieces = [b"a", b"bc", b" ", b"\t", b"  ", b"\r\n", b"\r\n\r\n", b" \r\n", b"\t \r\n"]
    for _ in range(2000):
        body = b"".join(rolls.choices(pieces, k=rolls.randint(0, 20)))
        lines = [re.sub(rb"[ \t]+", b" ", line).rstrip(b" ") for line in body.split(b"\r\n")]
        canonical = re.sub(rb"(\r\n)*\Z", b"\r\n", b"\r\n".join(lines), count=1)
        expected = hashlib.sha256(b"" if canonical == b"\r\n" else canonical).digest()
        cuts = sorted(rolls.choices(range(len(body) + 1), k=rolls.randint(0, 6)))
        chunks = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        assert dkim.hash_body(chunks) == expected, chunks


def test_signing_key_is_read_from_its_formats() -> None:
    rsa, ed25519 = (public_record(make_real_key(key.algorithm)) for key in KEYS)
    assert re.fullmatch("v=DKIM1; k=rsa; p=MIIB[A-Za-z0-9+/]{388}", rsa)
    assert re.fullmatch("v=DKIM1; k=ed25519; p=[A-Za-z0-9+/]{43}=", ed25519)
    assert {rsa, ed25519}.isdisjoint(public_record(key.private) for key in KEYS)  # the key is new each time


@pytest.mark.parametrize(
    ("domain", "keys"),
    [
        ("acme.test", []),
        ("Acme.test", KEYS),
        ("acme.test; l=0", KEYS),
        ("acme.test\r\nX: y", KEYS),
        ("acme.test", [SigningKey(selector="a;b", algorithm="rsa-sha256", private=KEYS[0].private)]),
        ("acme.test", [SigningKey(selector="a\n", algorithm="rsa-sha256", private=KEYS[0].private)]),
        ("acme.test", [SigningKey(selector="a", algorithm="ed25519-sha256", private=KEYS[0].private)]),
        ("acme.test", [SigningKey(selector="a", algorithm="rsa-sha256", private=b"no key")]),
    ],
)
def test_invalid_signing_key_is_refused(domain: str, keys: list[SigningKey]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  also cryptography's own
        Signer(domain, keys)


@pytest.mark.parametrize(
    "headers",
    [b"From: a", b"From a\r\n", b"From : a\r\n", b"\r\nFrom: a\r\n", b"From: a\nTo: b\r\n", b" x\r\nFrom: a\r\n"],
)
def test_broken_header_block_is_not_signed(headers: bytes) -> None:
    with pytest.raises(ValueError, match="not a field"):
        SIGNER.sign(headers, [], time_ms=TIME_MS)


def test_large_body_is_hashed_while_read() -> None:
    chunk_count = 0

    def chunks() -> Iterable[bytes]:
        nonlocal chunk_count
        for _ in range(80):
            chunk_count += 1
            yield b"x" * 62 * KIB + b"\r\n"

    assert SIGNER.sign(PLAIN, chunks(), time_ms=TIME_MS)
    assert chunk_count == 80  # one pass for both algorithms
