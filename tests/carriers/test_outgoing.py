"""Preparation of mails: built once, signed outside the event loop in batches, with the current keys."""

import asyncio
import io
import os
import re
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from email import message_from_bytes
from typing import Any, BinaryIO

import dkim
import msgspec
import pytest

from heliograph.carriers.contract import NotReady, OutboundMessage
from heliograph.carriers.email import mime, outgoing
from heliograph.carriers.email.outgoing import SIGN_BATCH_MAX, MailPreparer
from heliograph.domain.delivery.content import EmailContent, File
from heliograph.domain.ids import ulid
from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.domain.mail.dkim import Draft, SigningKey, generate_key, public_record
from heliograph.domain.mail.verp import ANY_RECIPIENT, parse_return_path
from heliograph.runtime.threads import BUILD_POOL, ThreadPool
from tests.fake_budget import room

OLD, NEW = (
    [
        SigningKey(selector=f"{name}-rsa", algorithm="rsa-sha256", private=generate_key("rsa-sha256")),
        SigningKey(selector=f"{name}-ed", algorithm="ed25519-sha256", private=generate_key("ed25519-sha256")),
    ]
    for name in ("old", "new")
)
NOW_MS = 1_794_735_000_000


class Keys:
    def __init__(self) -> None:
        self.now: Sequence[SigningKey] = OLD

    async def ensure(self, domain: str) -> None:
        raise AssertionError(f"{domain} has keys")


def no_blob(blob: str) -> BinaryIO:
    raise AssertionError(f"{blob} was opened")


async def bring_nothing(blob: str) -> None:
    raise AssertionError(f"{blob} was asked for")


def make(
    keys: Keys,
    bring_blob: Callable[[str], Awaitable[None]] = bring_nothing,
    open_blob: Callable[[str], BinaryIO] = no_blob,
) -> MailPreparer:
    return MailPreparer(
        ensure_keys=keys.ensure,
        signing_keys=lambda domain: keys.now,
        fetch_blob=bring_blob,
        open_blob=open_blob,
        envelope_key=b"key",
        entropy=os.urandom,
        now=lambda: NOW_MS,
        receives_complaints=True,
    )


def outbound_message(number: int, sender: str = "hi@acme.test") -> OutboundMessage:
    content = EmailContent(from_name="Acme", from_address=sender, to=["ann@example.com"], subject="Hi", text="Hi\n.\n")
    return OutboundMessage(
        message_id=f"eml_{ulid(NOW_MS, number)}",
        address="ann@example.com",
        content=msgspec.json.encode(content),
        attempt=0,
    )


async def full_mail(mails: MailPreparer, message: OutboundMessage) -> bytes:
    return b"".join((await mails.prepare(message)).chunks())


def verified(mail: bytes, keys: Sequence[SigningKey]) -> list[bool]:
    zone = {f"{key.selector}._domainkey.acme.test.": public_record(key.private).encode() for key in keys}
    judge = dkim.DKIM(mail)
    return [judge.verify(index, lambda name, timeout=5: zone.get(name.decode())) for index in range(len(keys))]


@pytest.mark.anyio
async def test_a_changed_key_signs_the_next_mail() -> None:
    keys = Keys()
    mails = make(keys)
    first = await full_mail(mails, outbound_message(1))
    keys.now = NEW
    second = await full_mail(mails, outbound_message(2))
    assert verified(first, OLD) == verified(second, NEW) == [True, True]


@pytest.mark.anyio
async def test_attachments_are_fetched_before_they_are_opened() -> None:
    here: dict[str, bytes] = {}

    async def bring(blob: str) -> None:
        here[blob] = b"attached"

    mails = make(Keys(), bring, lambda blob: io.BytesIO(here[blob]))
    file = File(filename="a.pdf", content_type="application/pdf", size=8, blob="ab")
    sent = outbound_message(1)
    content = msgspec.structs.replace(msgspec.json.decode(sent.content, type=EmailContent), attachments=[file])
    sent = msgspec.structs.replace(sent, content=msgspec.json.encode(content))
    assert b64encode(b"attached") in await full_mail(mails, sent)
    here.clear()
    assert b64encode(b"attached") in await full_mail(mails, sent)  # a later attempt, without its local copy
    here.clear()
    assert b64encode(b"attached") in await mails.build_unsigned(
        sent.message_id, msgspec.json.encode(content).decode(), room
    )


@pytest.mark.anyio
async def test_many_mails_are_signed_in_few_thread_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    signing, batches = list[int](), list[int]()
    sign, do_all = Draft.sign, outgoing._run_all

    def noted_sign(draft: Draft) -> bytes:
        signing.append(threading.get_ident())
        return sign(draft)

    def noted_trip(batch: Sequence[outgoing.QueuedWork]) -> list[outgoing.SignedMail | Exception]:
        batches.append(len(batch))
        return do_all(batch)

    monkeypatch.setattr(Draft, "sign", noted_sign)
    monkeypatch.setattr(outgoing, "_run_all", noted_trip)
    mails = make(Keys())
    await asyncio.gather(*(mails.prepare(outbound_message(number)) for number in range(3 * SIGN_BATCH_MAX)))
    assert len(signing) == 3 * SIGN_BATCH_MAX * len(OLD)
    assert threading.get_ident() not in signing
    assert batches == [SIGN_BATCH_MAX] * 3


@pytest.mark.anyio
@pytest.mark.parametrize(("mails_of_room", "built"), [(3, 3), (2, 6), (0, 6)])
async def test_built_mails_are_cached_up_to_a_byte_limit(
    monkeypatch: pytest.MonkeyPatch, mails_of_room: int, built: int
) -> None:
    monkeypatch.setattr(outgoing, "CACHED_BYTES_MAX", mails_of_room * len(outbound_message(1).content))
    built_calls, build = list[str](), MailPreparer._build_with_drafts

    def recorded(mails: MailPreparer, message_id: str, *rest: Any) -> Any:
        built_calls.append(message_id)
        return build(mails, message_id, *rest)

    monkeypatch.setattr(MailPreparer, "_build_with_drafts", recorded)
    mails = make(Keys())
    for number in (1, 2, 3, 1, 2, 3):
        await mails.prepare(outbound_message(number))
    assert len(built_calls) == built


@pytest.mark.anyio
async def test_mail_that_cannot_be_built_blocks_no_other() -> None:
    mails = make(Keys())
    broken = msgspec.structs.replace(outbound_message(2), message_id=f"eml_{ulid(NOW_MS, 2)}>")
    sent = await asyncio.gather(
        *(mails.prepare(message) for message in (outbound_message(1), broken, outbound_message(3))),
        return_exceptions=True,
    )
    assert [isinstance(message, ValueError) for message in sent] == [False, True, False]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content", "at_once"),
    [
        ({"text": "Hi"}, True),
        ({"text": "Hi", "html": "<p>Hi"}, True),
        ({"html": "<p>Hi"}, False),  # the text part is generated from the HTML, which is slow
        ({"text": "Hi" * outgoing.INLINE_CONTENT_MAX}, False),
        # A character of the head takes as long as thirty of the body.
        ({"text": "Hi", "subject": "Hi " * outgoing.INLINE_HEADERS_MAX}, False),
        ({"text": "Hi", "to": [f"Ann <{number}@example.com>" for number in range(200)]}, False),
        ({"text": "Hi", "headers": {f"X-{number}": "é" * 200 for number in range(20)}}, False),
        ({"text": "Hi", "attachments": [File(filename="é", content_type="a/b", size=1, base64="YQ==")]}, False),
    ],
)
async def test_only_small_mails_are_built_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, content: dict[str, Any], at_once: bool
) -> None:
    building, build = list[int](), mime.build_message

    def recorded(*content: Any, **with_name: Any) -> mime.MimeMessage:
        building.append(threading.get_ident())
        return build(*content, **with_name)

    monkeypatch.setattr(mime, "build_message", recorded)
    parsed_content = msgspec.json.decode(outbound_message(1).content, type=EmailContent)
    parsed_content = msgspec.structs.replace(parsed_content, **{"text": None, **content})
    sent = msgspec.structs.replace(outbound_message(1), content=msgspec.json.encode(parsed_content))
    assert verified(await full_mail(make(Keys()), sent), OLD) == [True, True]
    assert [thread_id == threading.get_ident() for thread_id in building] == [at_once]


@pytest.mark.anyio
async def test_cancelled_send_removes_no_mail_of_another() -> None:
    mails = make(Keys())
    first, second, other = (asyncio.create_task(mails.prepare(outbound_message(number))) for number in (1, 1, 2))
    while not mails._threads:
        await asyncio.sleep(0)
    first.cancel()
    assert (await second).size == (await other).size
    assert first.cancelled()


@pytest.mark.anyio
async def test_mail_queued_when_both_threads_end_is_built_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = list[tuple[asyncio.Future[Any], Sequence[outgoing.QueuedWork]]]()

    def run(do_all: Any, batch: Sequence[outgoing.QueuedWork]) -> asyncio.Future[Any]:
        batches.append((asyncio.get_running_loop().create_future(), batch))
        return batches[-1][0]

    mails, sent = make(Keys()), list[asyncio.Task[Any]]()
    with monkeypatch.context() as patch:
        patch.setattr(BUILD_POOL, "run", run)
        for number in range(outgoing.SIGNING_THREADS):
            sent.append(asyncio.create_task(mails.prepare(outbound_message(number))))
            while len(batches) <= number:
                await asyncio.sleep(0)
    for ended, batch in batches:
        ended.set_result(outgoing._run_all(batch))
    sent.append(asyncio.create_task(mails.prepare(outbound_message(9))))
    done, _ = await asyncio.wait(sent, timeout=5)
    assert len(done) == len(sent)


@pytest.mark.anyio
async def test_mail_that_no_thread_can_sign_is_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waiting recipients are deferred and the error is logged; none waits forever."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    mails, sent = make(Keys()), [outbound_message(number) for number in range(SIGN_BATCH_MAX + 1)]
    large = outbound_message(SIGN_BATCH_MAX + 1)
    sent.append(
        msgspec.structs.replace(large, content=large.content + b" " * PARSE_IN_THREAD_MIN)
    )  # read in a thread, too
    with monkeypatch.context() as patch:
        patch.setattr(outgoing, "BUILD_POOL", ThreadPool("tested", 2))
        patch.setattr(threading.Thread, "start", fail)
        trying = [asyncio.create_task(mails.prepare(message)) for message in sent]
        done, _ = await asyncio.wait(trying, timeout=5)
    assert len(done) == len(sent)
    for task in trying:
        with pytest.raises(NotReady, match="no thread is available to build mails: can't start new thread"):
            task.result()
    assert verified(await full_mail(mails, sent[0]), OLD) == [True, True]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "expected"),
    [({}, "welcome:3f:template:hg"), ({"feedback-id": "their-own"}, "their-own")],
)
async def test_complaint_headers_are_added_and_signed(headers: dict[str, str], expected: str) -> None:
    sent = outbound_message(1)
    content = msgspec.structs.replace(
        msgspec.json.decode(sent.content, type=EmailContent), headers=headers, feedback_id="welcome:3f:template:hg"
    )
    mail = await full_mail(make(Keys()), msgspec.structs.replace(sent, content=msgspec.json.encode(content)))
    fields = message_from_bytes(mail)
    assert fields.get_all("Feedback-ID") == [expected]
    address, _, parameter = fields["CFBL-Address"].partition(";")
    assert parse_return_path(b"key", address, NOW_MS) == (sent.message_id, ANY_RECIPIENT)
    assert address.endswith("@bounce.acme.test")
    assert parameter.strip() == "report=arf"
    assert verified(mail, OLD) == [True, True]
    for value in (expected, address):
        assert not any(verified(mail.replace(value.encode(), b"x" + value.encode(), 1), OLD))


@pytest.mark.anyio
async def test_system_mail_has_a_feedback_id() -> None:
    mail = message_from_bytes(await full_mail(make(Keys()), outbound_message(1)))
    name, team, class_, instance = mail["Feedback-ID"].split(":")
    assert (name, class_, len(team), len(instance)) == ("direct", "direct", 12, 10)


@pytest.mark.anyio
async def test_unsubscribe_headers_are_those_of_rfc_8058() -> None:
    content = EmailContent(
        from_name="Acme",
        from_address="hi@acme.test",
        to=["ann@example.com"],
        subject="News",
        text="News\n",
        unsubscribe_url="https://mail.acme.test/unsubscribe/abc_-9",
    )
    sent = msgspec.structs.replace(outbound_message(1), content=msgspec.json.encode(content))
    mail = await full_mail(make(Keys()), sent)
    fields = message_from_bytes(mail)
    assert fields.get_all("List-Unsubscribe-Post") == ["List-Unsubscribe=One-Click"]
    (unsubscribe,) = fields.get_all("List-Unsubscribe") or []
    uris = re.findall("<([^>]+)>", re.sub(r"\s", "", unsubscribe))
    assert [uri for uri in uris if uri.startswith("http")] == [content.unsubscribe_url]
    assert all(uri.startswith("mailto:") for uri in uris[1:])
    assert verified(mail, OLD) == [True, True]
    for signature in fields.get_all("DKIM-Signature") or []:
        tags = dkim.util.parse_tag_value(signature.encode())
        covered = [name.strip().lower() for name in tags[b"h"].split(b":")]
        assert {b"list-unsubscribe", b"list-unsubscribe-post"} <= set(covered)
