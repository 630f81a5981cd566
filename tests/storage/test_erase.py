"""Erasure of an address: no trace remains, data of others is kept, and later sends are still suppressed."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from heliograph.bootstrap import sqlite_path
from heliograph.domain.audit.actor import COMMAND_LINE, AuditEntry
from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.suppression_file import parse_suppression_file
from heliograph.domain.operations.erasure import address_variants, is_erased, placeholder
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.acceptance import AcceptedRecipient, AcceptState, BatchAcceptance, Decision
from heliograph.domain.sending.send_options import ExtraFields, tag_hash
from heliograph.domain.setup.records import Key, Recipient, TeamRecord, Template, TemplateDraft, Webhook
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound.store.inbound_mail import NewInboundMail
from heliograph.manage import erase as erasing
from heliograph.manage import export as exporting
from heliograph.settings import Settings
from heliograph.storage import audit, export
from heliograph.storage import erase as portions
from heliograph.storage.engine.query import load_queries
from heliograph.storage.engine.sqlite import vacuum
from heliograph.storage.erase import ErasureBlocked
from heliograph.storage.events import Event
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.search.message_search import MessageListRow, Search
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from heliograph.webhooks.store import DeliveryAttempt, DueDelivery, Lease
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, KEY, check, finish, message, retry_key, settle, start

pytestmark = pytest.mark.anyio

CANARY, WRITTEN = "zoe.canary@example.com", "Zoe.Canary@EXAMPLE.com"
PHONE = "+447700900777"
OTHER = "ada@example.com"
HOOK = "whk_a"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "SETTLE_S", 0.0)
    monkeypatch.setattr(portions, "BATCH", 2)  # so that every scan has several batches


@pytest.fixture
async def team(store: Store) -> None:
    """Set up team 1 with a key, a webhook and two sandbox recipients."""
    rows = [
        to_row("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        to_row("key", KEY, Key(id=KEY, team="team_a", name="k", hash=""), "team_a"),
        to_row("webhook", HOOK, Webhook(id=HOOK, team="team_a", url="http://a.test", secret=""), "team_a"),
        to_row("team", "team_b", TeamRecord(ref=2, id="team_b", name="B"), "team_b"),
    ]
    for address in (CANARY, PHONE, OTHER):
        rows.append(to_row("recipient", f"team_a/{address}", Recipient(team="team_a", address=address), "team_a"))
    await set_up(store, rows=rows)


def entry(clock: TestClock) -> Callable[[str, str, str], AuditEntry]:
    return lambda action, subject, detail: COMMAND_LINE.audit_entry(
        at=clock.now(), team="team_a", action=action, subject=subject, detail=detail
    )


async def erase(store: Store, clock: TestClock, values: str) -> int:
    count = await erasing.erase(store, COMMAND_LINE, store.setup.current.teams["team_a"], values)
    assert (await store.audit.verify()).broken is None
    return count


def mail(clock: TestClock, *to: str, **more: Any) -> Any:
    """Return a mail whose record has the fields of a real one."""
    id_ = clock.new_id("eml_")

    def decide(state: AcceptState) -> Decision:
        retained = [address for address in to if address.lower() not in state.suppressed]
        record = {"id": id_, "to": retained[0], "to_addresses": retained, "subject": f"Hello {to[0]}"}
        recipients = [AcceptedRecipient(a.lower(), a, "to") for a in retained]
        return Decision(response=msgspec.json.encode(record), recipients=recipients)

    content = msgspec.json.encode({"to": to, "text": f"Dear {to[0]}"})
    added = ExtraFields(tags={"for": to[0], "kind": "greeting"})
    fields: dict[str, Any] = {
        "id": id_,
        "extra_fields": added,
        "suppression_addresses": [address.lower() for address in to],
        "content": content,
    }
    return message(clock, decide=decide, **fields | more)


async def deliver(store: Store, clock: TestClock, status: str = "delivered", **more: Any) -> None:
    """Deliver the due messages; the carrier's reply contains the recipient."""
    for lane in ("email", "phone"):
        for claim in await store.outbox.claim(lane, 100):
            detail = {"text": f"250 <{claim.given_address}> {claim.address} ok"}
            change = RecipientUpdate(
                message=claim.message,
                position=claim.position,
                claim=claim.token,
                at=clock.now(),
                target_status=status,
                accepted=True,
                carrier="c",
                detail=detail,
                **more,
            )
            await store.outbox.record(change)


async def tell_webhooks(store: Store, clock: TestClock, state: str) -> None:
    """Deliver the webhook events; the receiver's response repeats each event."""
    for lease in await store.deliveries.claim([HOOK]):
        for due in (await store.deliveries.due(HOOK, 100)).new:
            await store.deliveries.record(answered(lease, due, clock, state, str(due.stored_event)))


def answered(lease: Lease, due: DueDelivery, clock: TestClock, state: str, answer: str) -> DeliveryAttempt:
    return DeliveryAttempt(
        lease=lease,
        due=due,
        started_at=clock.now(),
        status=200,
        error=None,
        duration_ms=1,
        answer=answer,
        state=state,
        due_at=clock.now() + 10**9,
    )


async def plant(store: Store, clock: TestClock, canary: str, written: str) -> None:
    """Store the address in every possible way."""
    await store.messages.accept(mail(clock, written, idempotency_key=retry_key("k1"), marketing_to=canary))
    await store.messages.accept(mail(clock, OTHER, written, idempotency_key=retry_key("k2")))
    await store.messages.accept(mail(clock, OTHER, content=naming(written)))
    await deliver(store, clock)
    await store.messages.accept(mail(clock, written))
    await deliver(store, clock, "bounced", suppress="bounce")
    await store.suppressions.remove(1, canary, ENTRY)
    await store.suppressions.add(NewSuppression(1, canary, written, "complaint"), ENTRY)
    words = msgspec.json.encode({"text": f"{OTHER}, {written}: unknown"}).decode()
    row = (1, OTHER, OTHER, "bounce", None, words, clock.now())
    await store.database.write(lambda tx: tx.run("insert_suppressions", suppressions=[row]))
    added = ExtraFields(tags={"for": written}, metadata={"for": written})
    started = start(clock, phone=canary, prefix=canary[:-4], idempotency_key=retry_key("k3"), added=added)
    await store.verifications.start(started)
    answer = msgspec.json.encode({"to": canary})
    await store.verifications.finish(finish(started, clock, response=answer))
    await store.verifications.check(check(started, "right", clock.now()))
    report = Report(status="delivered", detail={"text": f"to {canary.removeprefix('+')}"})
    await store.reports.store_by_carrier("c", [CarrierReport("unknown", report)])
    lines = parse_suppression_file(f"{OTHER}\n{written}\nnot {written}\n".encode())
    note = entry(clock)("suppression.import", "imp_1", "3 lines")
    id_ = clock.new_id("imp_")
    await store.imports.begin(id_, 1, lines, note)
    with pytest.raises(ErasureBlocked, match="import"):
        await erase(store, clock, canary)
    assert await store.imports.apply_batch(id_)
    notes = [entry(clock)("suppression.add", written, f"for {written}"), entry(clock)("recipient.ask", OTHER, "")]
    await store.database.write(lambda tx: audit.write(tx, *notes))
    columns = (
        *(clock.new_id("req_"), 1, clock.now(), KEY),
        *("POST /v1/emails", 422, "x", f"'{written}' is none", 0, 3, 0, "", 1, "curl"),
    )
    await store.database.write(lambda tx: tx.run("insert_requests", requests=[columns]))
    await tell_webhooks(store, clock, "delivered")
    for sender, text in ((canary, "Hi"), (OTHER, f"Ask {written}"), (OTHER, "Nobody")):
        id_ = clock.new_id("rcv_")
        record = {"object": "received", "id": id_, "from": sender, "subject": "S", "text": text, "html": None}
        events = msgspec.json.encode(record).decode()
        received = NewInboundMail(
            id=id_, team=1, sender=sender, size=1, automatic=False, record=events, body=None, daily_octets_max=0
        )
        await store.inbound_mail.insert(received, await store.inbound_mail.store_raw(id_.encode()))
    for version, text in enumerate((f"Ask {written}", "Ask us", f"Or {written.upper()}"), 1):
        body = Template(id="tpl_a", team="team_a", channel="email", name="a", version=version, text=text)
        await set_up(store, rows=[to_row("template", "tpl_a", body, "team_a")])
    draft = TemplateDraft(team="team_a", template=body, by="usr_1", at=1)
    named = Key(id="k2", team="team_a", name=f"of {written}", hash="")
    await set_up(store, rows=[to_row("template_draft", "tpl_a", draft, "team_a"), to_row("key", "k2", named, "team_a")])
    instance = COMMAND_LINE.audit_entry(clock.now(), "person.add", canary, f"for {written}")
    await store.database.write(lambda tx: audit.write(tx, instance))
    if "@" in canary:
        await join(store, "team_a", OTHER, "owner")
        await join(store, "team_a", written, "viewer")


async def join(store: Store, team: str, email: str, role: str) -> None:
    add = COMMAND_LINE.audit_entry(store.clock.now(), "member.invite", email, role, team=team)
    await settle(store.people, email.lower(), f"I am {email}", {team: role}, add)


def naming(written: str) -> bytes:
    return msgspec.json.encode({"to": [OTHER], "text": f"{written} invites you"})


async def found(sql: Sql, settings: Settings, text: str) -> list[str]:
    """Return where the text occurs, in any case: the whole SQLite file, or every table of PostgreSQL."""
    path = sqlite_path(settings)
    if path:
        vacuum(path)
        files = [file for file in path.parent.iterdir() if file.name.startswith(path.name)]
        return [file.name for file in files if text.lower().encode() in file.read_bytes().lower()]
    tables = await sql("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()")
    return [
        t for (t,) in tables if await sql(f"SELECT 1 FROM {t} AS t WHERE strpos(lower(t::text), lower('{text}')) > 0")
    ]


async def tagged(store: Store, tag: tuple[str, str]) -> Sequence[MessageListRow]:
    return (await store.messages.search(1, Search(limit=100, tag=tag))).rows


# -- it stands nowhere any more ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("canary", "written"), [(CANARY, WRITTEN), (PHONE, PHONE)], ids=["email", "phone"])
async def test_erased_address_is_in_no_table_any_more(
    team: None, store: Store, clock: TestClock, sql: Sql, settings: Settings, canary: str, written: str
) -> None:
    await plant(store, clock, canary, written)
    bare = canary.removeprefix("+")
    assert await found(sql, settings, bare)
    before = {
        table: await sql(f"SELECT count(*) FROM {table}") for table in ("message", "recipient", "event", "ledger")
    }
    assert await erase(store, clock, written) == 4
    assert await found(sql, settings, bare) == []
    after = {table: await sql(f"SELECT count(*) FROM {table}") for table in before}
    assert after == before  # the audit entries stay, without the address
    assert await tagged(store, ("for", written)) == []
    assert await sql(f"SELECT 1 FROM tag WHERE tag = {tag_hash('for', written)}") == []
    assert len(await tagged(store, ("kind", "greeting"))) == 4
    assert await found(sql, settings, OTHER)
    assert canary not in store.setup.current.teams["team_a"].recipients
    await store.reports.apply_early_reports()
    await store.maintenance.purge()
    assert await erase(store, clock, written) == 0  # running it again is harmless
    template = store.setup.current.teams["team_a"].templates["tpl_a"]
    assert (template.text, template.version) == (f"Or {placeholder(canary)}", 3)
    assert [line.version for line in await store.versions.list("tpl_a")] == [3, 2, 1]
    assert "Ask us" in str(await store.versions.find_template("tpl_a", 2))


# -- accounts ------------------------------------------------------------------------------------------------------


async def test_account_that_others_need_is_not_erased(team: None, store: Store, clock: TestClock, sql: Sql) -> None:
    instance = COMMAND_LINE.audit_entry(clock.now(), "person.add", CANARY, "")
    await store.database.write(lambda tx: audit.write(tx, instance))
    await join(store, "team_a", OTHER, "owner")
    await join(store, "team_a", CANARY, "developer")
    await join(store, "team_b", CANARY, "owner")
    await erase(store, clock, CANARY)
    assert await sql(
        "SELECT m.team FROM member m JOIN person p ON p.id = m.person WHERE p.email = '" + CANARY + "'"
    ) == [("team_b",)]
    assert await sql(f"SELECT team FROM audit WHERE subject = '{CANARY}' ORDER BY key") == [(None,), ("team_b",)]


async def test_last_owner_is_not_erased(team: None, store: Store, clock: TestClock, sql: Sql) -> None:
    await join(store, "team_a", CANARY, "owner")
    with pytest.raises(InvalidRequest, match="A team needs an owner"):
        await erase(store, clock, CANARY)
    assert await store.people.find(CANARY)
    await join(store, "team_a", OTHER, "owner")
    await erase(store, clock, CANARY)
    assert await store.people.find(CANARY) is None


async def test_erasure_sample_covers_every_table(
    team: None, store: Store, clock: TestClock, sql: Sql, settings: Settings
) -> None:
    """Every table that can contain an address must contain one, otherwise the other test proves nothing."""
    await plant(store, clock, CANARY, WRITTEN)
    held = set()
    tables = ("message", "content", "recipient", "event", "suppression", "idempotency", "verification", "marketing",
              "early_report", "attempt", "delivery", "audit", "seen_recipient", "setting", "request_log",
              "suppression_import", "import_portion", "template_version", "person")  # fmt: skip
    for table in tables:
        rows = await sql(f"SELECT * FROM {table}")
        held |= {table} if any(CANARY in str(row).lower() for row in rows) else set()
    assert held == set(tables)


async def test_erasure_leaves_data_of_other_people_unchanged(
    team: None, store: Store, clock: TestClock, sql: Sql
) -> None:
    longer = f"x{CANARY}"  # a longer address that contains it
    await store.messages.accept(mail(clock, OTHER))
    await store.messages.accept(mail(clock, longer))
    await store.messages.accept(mail(clock, OTHER, WRITTEN))
    await deliver(store, clock)
    await store.messages.accept(mail(clock, CANARY, team=2))
    await deliver(store, clock)
    assert await erase(store, clock, CANARY) == 1
    values = [row[0] for row in await sql("SELECT given FROM recipient ORDER BY message, position")]
    assert values == [OTHER, longer, OTHER, "erased-2@erased.invalid", CANARY]
    assert await sql("SELECT has_body FROM message ORDER BY key") == [(1,), (1,), (0,), (1,)]
    records = [msgspec.json.decode(row[0]) for row in await sql("SELECT record FROM message ORDER BY key")]
    assert records[2]["to_addresses"] == [OTHER, "erased@erased.invalid"]
    assert records[2]["subject"] == "[erased]"
    assert records[3]["to"] == CANARY  # another team's
    events = await sql("SELECT recipient, detail FROM event WHERE message = 3 ORDER BY key")
    assert {row[0] for row in events} == {OTHER, "erased-2@erased.invalid"}
    assert all(OTHER in row[1] for row in events if row[0] == OTHER)


async def test_late_reports_about_an_erased_address_are_not_stored(
    team: None, store: Store, clock: TestClock, sql: Sql, settings: Settings
) -> None:
    """A receipt, and a webhook response that was in flight."""
    await store.messages.accept(mail(clock, CANARY))
    await store.messages.accept(mail(clock, OTHER, CANARY))
    await deliver(store, clock, "sent", carrier_id="id-1")
    (lease,) = await store.deliveries.claim([HOOK])
    new = (await store.deliveries.due(HOOK, 100)).new
    await erase(store, clock, CANARY)
    for due in new:
        await store.deliveries.record(answered(lease, due, clock, "delivered", CANARY))
    detail = {"text": f"550 {CANARY} unknown"}
    for place in await sql("SELECT message, position FROM recipient"):
        change = RecipientUpdate(
            at=clock.now(), message=place[0], position=place[1], target_status="bounced", suppress="bounce"
        )
        await store.outbox.record(msgspec.structs.replace(change, detail=detail if place[1] or place[0] == 1 else {}))
    assert await found(sql, settings, CANARY) == []
    assert [row[0] for row in await sql("SELECT status FROM recipient ORDER BY message, position")] == [
        *("sent", "bounced", "sent"),
    ]
    assert await sql("SELECT count(*) FROM message WHERE ended_at IS NULL") == [(0,)]  # for retention
    again = (await store.deliveries.due(HOOK, 100)).new
    assert {due.key for due in new} <= {due.key for due in again}  # sent again, without the address


# -- a hash stays ---------------------------------------------------------------------------------------------------


async def suppressed(store: Store, clock: TestClock, address: str, team: int = 1) -> bool:
    seen: list[bool] = []

    def decide(state: AcceptState) -> Decision:
        seen.append(address in state.suppressed)
        return Decision(response=b"{}", recipients=[], price=0)

    await store.messages.dry_run(message(clock, team=team, suppression_addresses=[address], decide=decide))
    await store.messages.accept(message(clock, team=team, suppression_addresses=[address], decide=decide))
    assert seen[0] == seen[1]
    return seen[0]


async def test_erased_address_stays_suppressed(
    team: None, store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    await store.suppressions.add(NewSuppression(1, CANARY, WRITTEN, "complaint"), ENTRY)
    ((since,),) = await sql("SELECT created_at FROM suppression")
    clock.forward(5000)
    await erase(store, clock, WRITTEN)
    for process in (store, other):  # the other process detects it by the account's row
        assert await suppressed(process, clock, CANARY)
    assert not await suppressed(store, clock, OTHER)
    assert not await suppressed(store, clock, CANARY, team=2)
    (line,) = (await store.suppressions.search(1)).rows
    assert (is_erased(line.address), line.reason, line.created_at) == (True, "complaint", since)
    assert CANARY not in (line.address, line.email)
    email = await store.suppressions.get(1, CANARY)
    assert email and email.email == line.email
    assert await store.suppressions.remove(1, CANARY, ENTRY)  # anyone who knows the address can remove the suppression
    assert not await suppressed(store, clock, CANARY)


async def test_erasure_of_an_unsuppressed_address_suppresses_it(team: None, store: Store, clock: TestClock) -> None:
    await erase(store, clock, CANARY)
    assert await suppressed(store, clock, CANARY)


async def test_team_without_erasures_computes_no_hash(team: None, store: Store, clock: TestClock) -> None:
    await erase(store, clock, CANARY)
    requested: list[tuple[int, str]] = []
    name_of = store.messages._erased_name_of
    store.messages._erased_name_of = lambda team, address: requested.append((team, address)) or name_of(team, address)  # type: ignore
    await suppressed(store, clock, OTHER, team=2)
    assert requested == []
    await suppressed(store, clock, OTHER)
    assert set(requested) == {(1, OTHER)}


async def test_audit_log_of_an_erasure_has_a_part_of_the_hash(
    team: None, store: Store, clock: TestClock, sql: Sql
) -> None:
    await erase(store, clock, CANARY)
    name = store.suppressions.erased_name_of(1, CANARY)
    expected = [
        ("address.erase", name[7:19], "begun"),
        ("recipient.remove", name[7:19], ""),
        ("address.erase", name[7:19], "done, messages: 0"),
    ]
    assert await sql("SELECT action, subject, detail FROM audit ORDER BY key") == expected


# -- what must wait --------------------------------------------------------------------------------------------------


async def test_erasure_with_unfinished_messages_is_refused(
    team: None, store: Store, clock: TestClock, sql: Sql
) -> None:
    await store.messages.accept(mail(clock, OTHER, CANARY))
    await store.messages.accept(mail(clock, PHONE, channel="sms"))
    for address in (CANARY, PHONE):
        with pytest.raises(ErasureBlocked, match="messages: 1, verifications: 0"):
            await erase(store, clock, address)
    assert await sql("SELECT erased FROM account WHERE team = 1") == [(0,)]
    assert await sql("SELECT count(*) FROM suppression") == [(0,)]
    await deliver(store, clock)
    started = start(clock, phone=PHONE)
    await store.verifications.start(started)
    await store.verifications.finish(finish(started, clock))
    with pytest.raises(ErasureBlocked, match="messages: 0, verifications: 1"):
        await erase(store, clock, PHONE)
    clock.forward(11 * 60_000)
    assert await erase(store, clock, PHONE) == 1
    assert await erase(store, clock, CANARY) == 1


async def test_erasure_keeps_the_text_of_an_unsent_message_to_another_recipient(
    team: None, store: Store, clock: TestClock, sql: Sql
) -> None:
    await store.messages.accept(mail(clock, OTHER, content=naming(CANARY)))
    with pytest.raises(ErasureBlocked, match="messages to others"):
        await erase(store, clock, CANARY)
    assert len(await sql("SELECT body FROM content")) == 1
    await deliver(store, clock)
    assert await erase(store, clock, CANARY) == 1
    assert await sql("SELECT body FROM content") == []


@pytest.mark.parametrize("given", ["", "zoe", "+1", "delivered@simulator.test", "erased@erased.invalid"])
async def test_erasure_of_an_invalid_address_is_refused(team: None, store: Store, clock: TestClock, given: str) -> None:
    with pytest.raises(InvalidRequest, match="expected an email address|not a person's address"):
        await erase(store, clock, given)


async def test_batch_is_finished_when_its_last_message_is_erased(store: Store, team: None, clock: TestClock) -> None:
    sent = message(clock, CANARY, batch="bat_1")
    await store.messages.accept(
        BatchAcceptance(
            id="bat_1",
            team=1,
            key_id=KEY,
            created_at=clock.now(),
            sends=[sent],
            strict=True,
            respond=lambda events: b"{}",
        )
    )
    await deliver(store, clock, "sent")
    await erase(store, clock, CANARY)
    clock.forward(1000)
    assert [events.type for events in await store.events.feed(1, "", 100)][-1] == "batch.done"


# -- what an export shows --------------------------------------------------------------------------------------------


async def exported(store: Store, values: str) -> dict[str, Any]:
    return await exporting.export(store, COMMAND_LINE, store.setup.current.teams["team_a"], values)


SECTIONS = {"messages", "events", "verifications", "marketing", *export.SECTION_BY_TABLE.values()}


@pytest.mark.parametrize(("canary", "written"), [(CANARY, WRITTEN), (PHONE, PHONE)], ids=["email", "phone"])
async def test_export_has_all_data_that_an_erasure_removes_and_no_other(
    team: None, store: Store, clock: TestClock, sql: Sql, canary: str, written: str
) -> None:
    await plant(store, clock, canary, written)
    held = await exported(store, written)
    assert {name for name in SECTIONS if held[name]} == SECTIONS
    assert held["is_sandbox_recipient"]
    assert (held["account"] is not None) == ("@" in canary)
    named_records = {("template", "tpl_a"), ("template_draft", "tpl_a"), ("key", "k2")}
    assert {(item["kind"], item["id"]) for item in held["setup"]} == named_records
    assert OTHER not in str(held)
    named = [section for section in SECTIONS - {"marketing"} if canary.removeprefix("+") in str(held[section]).lower()]
    assert set(named) == SECTIONS - {"marketing"}  # whose rows contain only times
    assert [len(message["recipients"]) for message in held["messages"]] == [1, 1, 0, 1]
    assert held["messages"][1]["record"]["to_addresses"] == [written]
    assert held["messages"][1]["webhook_deliveries"][0]["answers"]
    assert {event["recipient"] for message in held["messages"] for event in message["timeline"]} == {written}
    await erase(store, clock, written)
    after = await exported(store, written)
    assert {name for name in SECTIONS if after[name]} == set()
    assert not after["is_sandbox_recipient"]
    assert (after["account"], after["setup"]) == (None, [])
    name = store.suppressions.erased_name_of(1, canary)[7:19]
    entries = await sql("SELECT subject, detail FROM audit WHERE action = 'address.export' ORDER BY key")
    assert entries == [(name, "messages: 4"), (name, "messages: 0")]


def test_export_reads_every_table_that_an_erasure_changes() -> None:
    looks = {name.removeprefix("scan_") for name in load_queries("sqlite") if name.startswith("scan_")}
    assert looks == {"messages", "events", "verifications", "marketing", *export.SECTION_BY_TABLE}


async def test_export_contains_no_verification_codes(team: None, store: Store, clock: TestClock, sql: Sql) -> None:
    await plant(store, clock, PHONE, PHONE)
    ((salt, digest),) = await sql("SELECT salt, digest FROM verification")
    held = str(await exported(store, PHONE))
    assert digest and digest not in held and not (salt and salt in held)


async def test_searched_tables_have_the_columns_of_their_queries(store: Store) -> None:
    forms = address_variants("a@example.com", "a@example.com")
    expected = portions.ErasureTarget(
        ref=1,
        team="team_a",
        variants=forms,
        address_hash="hash",
        webhooks=(),
        keys=("key",),
        templates=("tpl",),
        instance_audit=True,
    )
    tables = [portions.events_table(expected), *await portions.text_tables(store.database, expected)]
    queries = load_queries("sqlite")
    for table in tables:
        picked = re.findall(r"SELECT (.*?) FROM", " ".join(queries[f"scan_{table.name}"].sql.split()))[0]
        names = [name.strip().removeprefix("i.") for name in picked.split(",")]
        assert names[1:] == [*table.text_columns, *table.other_columns], table.name


@pytest.mark.parametrize("name", ["early", "returns", "events", "verifications", "lone events"])
async def test_row_with_the_reused_key_of_a_read_row_is_left_unchanged(
    store: Store, clock: TestClock, sql: Sql, name: str
) -> None:
    """SQLite reuses the last row's key: between the read and the write of an erasure or of retention."""
    now = clock.now()
    table = {"early": "early_report", "returns": "early_return", "lone events": "event"}.get(name, name.rstrip("s"))
    if name == "verifications":
        await store.verifications.start(start(clock))
    elif name == "early":
        row = ("sim", "id", "new", now)
        await store.database.write(lambda tx: tx.run("insert_early_reports", reports=[row]))
    elif name == "returns":
        place = {"message": 1, "position": 0, "report": "new", "created_at": now}
        await store.database.write(lambda tx: tx.run("insert_early_return", **place))
    else:
        event = Event(id="evt_new", team=1, subject="new", type="domain.verified", created_at=now)
        await store.database.write(lambda tx: store.setup.publisher.publish(tx, [event]))
    before = await sql(f"SELECT * FROM {table}")
    ((key,),) = await sql(f"SELECT key FROM {table}")
    stale: dict[str, tuple[str, dict[str, Any]]] = {
        "early": ("erase_early_reports", {"rows": [(key, "old", "erased")]}),
        "returns": ("erase_early_bounces", {"rows": [(key, "old", "erased")]}),
        "events": ("erase_events", {"events": [("evt_old", key, "erased", None, None)]}),
        "verifications": ("purge_verifications", {"old": [(key, now - DAY_MS)]}),
        "lone events": ("purge_lone_events", {"old": [(key, now - DAY_MS)]}),
    }
    query, values = stale[name]
    await store.database.write(lambda tx: tx.run(query, **values))
    assert await sql(f"SELECT * FROM {table}") == before
