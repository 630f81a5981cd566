"""Mails made ready for the wire: built once, signed away from the event loop, several at a time, by the keys of now."""

import asyncio
import io
import os
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, BinaryIO

import dkim
import msgspec
import pytest

from heliograph.carriers.contract import NotReady, Parcel
from heliograph.carriers.email import mime, outgoing
from heliograph.carriers.email.outgoing import TOGETHER, Outgoing
from heliograph.domain.delivery.content import EmailContent, File
from heliograph.domain.ids import ulid
from heliograph.domain.limits import IN_THREAD
from heliograph.domain.mail.dkim import Draft, SigningKey, make_key, public_record
from heliograph.runtime.threads import BUILDING, Threads
from tests.fake_budget import room

OLD, NEW = (
    [
        SigningKey(selector=f"{name}-rsa", algorithm="rsa-sha256", private=make_key("rsa-sha256")),
        SigningKey(selector=f"{name}-ed", algorithm="ed25519-sha256", private=make_key("ed25519-sha256")),
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
) -> Outgoing:
    return Outgoing(
        ensure_keys=keys.ensure,
        keys_of=lambda domain: keys.now,
        bring_blob=bring_blob,
        open_blob=open_blob,
        envelope_key=b"key",
        entropy=os.urandom,
        now=lambda: NOW_MS,
    )


def parcel(number: int, sender: str = "hi@acme.test") -> Parcel:
    content = EmailContent(from_name="Acme", from_address=sender, to=["ann@example.com"], subject="Hi", text="Hi\n.\n")
    return Parcel(
        message_id=f"eml_{ulid(NOW_MS, number)}",
        address="ann@example.com",
        content=msgspec.json.encode(content),
        attempt=0,
    )


async def whole(mails: Outgoing, one: Parcel) -> bytes:
    return b"".join((await mails.prepare(one)).chunks())


def verified(mail: bytes, keys: Sequence[SigningKey]) -> list[bool]:
    zone = {f"{key.selector}._domainkey.acme.test.": public_record(key.private).encode() for key in keys}
    judge = dkim.DKIM(mail)
    return [judge.verify(index, lambda name, timeout=5: zone.get(name.decode())) for index in range(len(keys))]


@pytest.mark.anyio
async def test_a_changed_key_signs_the_next_mail() -> None:
    keys = Keys()
    mails = make(keys)
    first = await whole(mails, parcel(1))
    keys.now = NEW
    second = await whole(mails, parcel(2))
    assert verified(first, OLD) == verified(second, NEW) == [True, True]


@pytest.mark.anyio
async def test_attachments_are_brought_before_they_are_opened() -> None:
    here: dict[str, bytes] = {}

    async def bring(blob: str) -> None:
        here[blob] = b"attached"

    mails = make(Keys(), bring, lambda blob: io.BytesIO(here[blob]))
    file = File(filename="a.pdf", content_type="application/pdf", size=8, blob="ab")
    sent = parcel(1)
    content = msgspec.structs.replace(msgspec.json.decode(sent.content, type=EmailContent), attachments=[file])
    sent = msgspec.structs.replace(sent, content=msgspec.json.encode(content))
    assert b64encode(b"attached") in await whole(mails, sent)
    here.clear()
    assert b64encode(b"attached") in await whole(mails, sent)  # a later try, without its local copy
    here.clear()
    assert b64encode(b"attached") in await mails.plain(sent.message_id, msgspec.json.encode(content).decode(), room)


@pytest.mark.anyio
async def test_many_mails_are_signed_in_few_trips_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    signing, trips = list[int](), list[int]()
    sign, do_all = Draft.sign, outgoing._do_all

    def noted_sign(draft: Draft) -> bytes:
        signing.append(threading.get_ident())
        return sign(draft)

    def noted_trip(taken: Sequence[outgoing.Waiting]) -> list[outgoing.Ready | Exception]:
        trips.append(len(taken))
        return do_all(taken)

    monkeypatch.setattr(Draft, "sign", noted_sign)
    monkeypatch.setattr(outgoing, "_do_all", noted_trip)
    mails = make(Keys())
    await asyncio.gather(*(mails.prepare(parcel(number)) for number in range(3 * TOGETHER)))
    assert len(signing) == 3 * TOGETHER * len(OLD)
    assert threading.get_ident() not in signing
    assert trips == [TOGETHER] * 3


@pytest.mark.anyio
@pytest.mark.parametrize(("mails_of_room", "built"), [(3, 3), (2, 6), (0, 6)])
async def test_built_mails_are_kept_for_others_up_to_so_many_bytes(
    monkeypatch: pytest.MonkeyPatch, mails_of_room: int, built: int
) -> None:
    monkeypatch.setattr(outgoing, "KEPT_OCTETS", mails_of_room * len(parcel(1).content))
    made, build = list[str](), Outgoing._build

    def noted(mails: Outgoing, message_id: str, *rest: Any) -> Any:
        made.append(message_id)
        return build(mails, message_id, *rest)

    monkeypatch.setattr(Outgoing, "_build", noted)
    mails = make(Keys())
    for number in (1, 2, 3, 1, 2, 3):
        await mails.prepare(parcel(number))
    assert len(made) == built


@pytest.mark.anyio
async def test_a_mail_that_cannot_be_built_stops_no_other() -> None:
    mails = make(Keys())
    broken = msgspec.structs.replace(parcel(2), message_id=f"eml_{ulid(NOW_MS, 2)}>")
    sent = await asyncio.gather(*(mails.prepare(one) for one in (parcel(1), broken, parcel(3))), return_exceptions=True)
    assert [isinstance(one, ValueError) for one in sent] == [False, True, False]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content", "at_once"),
    [
        ({"text": "Hi"}, True),
        ({"text": "Hi", "html": "<p>Hi"}, True),
        ({"html": "<p>Hi"}, False),  # its text is made from it, which takes long
        ({"text": "Hi" * outgoing.AT_ONCE}, False),
        # A character of the head takes as long as thirty of the body.
        ({"text": "Hi", "subject": "Hi " * outgoing.HEAD_AT_ONCE}, False),
        ({"text": "Hi", "to": [f"Ann <{number}@example.com>" for number in range(200)]}, False),
        ({"text": "Hi", "headers": {f"X-{number}": "é" * 200 for number in range(20)}}, False),
        ({"text": "Hi", "attachments": [File(filename="é", content_type="a/b", size=1, base64="YQ==")]}, False),
    ],
)
async def test_only_what_is_built_soon_is_built_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, content: dict[str, Any], at_once: bool
) -> None:
    building, build = list[int](), mime.build

    def noted(*given: Any, **named: Any) -> mime.Mail:
        building.append(threading.get_ident())
        return build(*given, **named)

    monkeypatch.setattr(mime, "build", noted)
    given = msgspec.json.decode(parcel(1).content, type=EmailContent)
    given = msgspec.structs.replace(given, **{"text": None, **content})
    sent = msgspec.structs.replace(parcel(1), content=msgspec.json.encode(given))
    assert verified(await whole(make(Keys()), sent), OLD) == [True, True]
    assert [one == threading.get_ident() for one in building] == [at_once]


@pytest.mark.anyio
async def test_a_hand_over_that_gives_up_takes_no_mail_from_another() -> None:
    mails = make(Keys())
    first, second, other = (asyncio.create_task(mails.prepare(parcel(number))) for number in (1, 1, 2))
    while not mails._threads:
        await asyncio.sleep(0)
    first.cancel()
    assert (await second).size == (await other).size
    assert first.cancelled()


@pytest.mark.anyio
async def test_a_mail_that_comes_when_both_threads_have_just_ended_waits_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trips = list[tuple[asyncio.Future[Any], Sequence[outgoing.Waiting]]]()

    def run(do_all: Any, taken: Sequence[outgoing.Waiting]) -> asyncio.Future[Any]:
        trips.append((asyncio.get_running_loop().create_future(), taken))
        return trips[-1][0]

    mails, sent = make(Keys()), list[asyncio.Task[Any]]()
    with monkeypatch.context() as held:
        held.setattr(BUILDING, "run", run)
        for number in range(outgoing.THREADS):
            sent.append(asyncio.create_task(mails.prepare(parcel(number))))
            while len(trips) <= number:
                await asyncio.sleep(0)
    for ended, taken in trips:
        ended.set_result(outgoing._do_all(taken))
    sent.append(asyncio.create_task(mails.prepare(parcel(9))))
    done, _ = await asyncio.wait(sent, timeout=5)
    assert len(done) == len(sent)


@pytest.mark.anyio
async def test_a_mail_that_no_thread_can_sign_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deferred and logged as all that is: not one of them waits for ever."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    mails, sent = make(Keys()), [parcel(number) for number in range(TOGETHER + 1)]
    large = parcel(TOGETHER + 1)
    sent.append(msgspec.structs.replace(large, content=large.content + b" " * IN_THREAD))  # read in a thread, too
    with monkeypatch.context() as patch:
        patch.setattr(outgoing, "BUILDING", Threads("tested", 2))
        patch.setattr(threading.Thread, "start", fail)
        trying = [asyncio.create_task(mails.prepare(one)) for one in sent]
        done, _ = await asyncio.wait(trying, timeout=5)
    assert len(done) == len(sent)
    for task in trying:
        with pytest.raises(NotReady, match="no thread to make mails in: can't start new thread"):
            task.result()
    assert verified(await whole(mails, sent[0]), OLD) == [True, True]
