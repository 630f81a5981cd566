"""A setup file: one audit entry for all its changes, in a team's log if it changes only that team."""

import threading

import pytest

from heliograph.app import make_key_pair
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.plan import Plan
from heliograph.domain.setup.setup_file import SetupError, parse_setup_file
from heliograph.encryption import Cipher
from heliograph.manage import apply as setup
from heliograph.manage.apply import AUDIT_DETAIL_MAX
from heliograph.manage.credit import CreditAdjustment, adjust_credit
from heliograph.storage.store import Store
from tests.manage.conftest import list_entries

pytestmark = pytest.mark.anyio

TEAM = '[[teams]]\nid = "{id}"\n'
RECIPIENT = '[[teams.recipients]]\naddress = "me@example.com"\n'
SUPPRESSION = '[[teams.suppressions]]\nemail = "gone@example.com"\n'
POSTAL = '[[teams.webhooks]]\nurl = "https://hooks.test/{n}"\nevents = ["*"]\nformat = "postal"\n'
DOMAIN = '[[teams.domains]]\nid = "dom_{n}"\nname = "d{n}.test"\n'


async def apply(store: Store, text: str) -> Plan:
    file = parse_setup_file(text, {}, name="setup.toml")
    return await setup.apply(
        store, COMMAND_LINE, file, vault=Cipher(bytes(32)), make_secret=str, make_pair=make_key_pair
    )


async def preview(store: Store, text: str) -> Plan:
    file = parse_setup_file(text, {}, name="setup.toml")
    return await setup.preview(store, file, vault=Cipher(bytes(32)), make_secret=str)


@pytest.mark.parametrize(
    ("text", "team", "detail"),
    [
        (TEAM.format(id="team_new"), "team_new", "team team_new: created"),
        (TEAM.format(id="team_1") + 'name = "One"\n', "team_1", "team team_1: changed (name)"),
        (TEAM.format(id="team_1") + RECIPIENT + SUPPRESSION, "team_1", "recipients and suppressions: 2"),
        (TEAM.format(id="team_1") + SUPPRESSION, "team_1", "recipients and suppressions: 1"),
        ('[platform]\nbrand = "B"\n', None, "platform: created"),
        (
            TEAM.format(id="team_1") + SUPPRESSION + TEAM.format(id="team_2") + 'name = "Two"\n',
            None,
            "team team_2: changed (name); recipients and suppressions: 1",
        ),
    ],
)
async def test_applied_setup_file_writes_one_audit_entry(
    store: Store, teams: None, text: str, team: str | None, detail: str
) -> None:
    await apply(store, text)
    assert (await apply(store, text)).changed == []  # and no entry
    (entry,) = await store.audit.list_rows(None)
    assert (entry.actor, entry.action, entry.subject) == ("command line", "setup.apply", "setup.toml")
    assert (entry.team, entry.detail) == (team, detail)


async def test_applied_long_setup_file_has_a_short_audit_entry(store: Store, teams: None) -> None:
    await apply(store, TEAM.format(id="team_1") + "".join(DOMAIN.format(n=number) for number in range(50)))
    ((_, _, _, detail),) = await list_entries(store, "team_1")
    assert detail.startswith("50 changes: domain dom_0: created; ")
    assert len(detail) < AUDIT_DETAIL_MAX + 20


async def test_setup_file_with_an_error_writes_no_audit_entry(store: Store, teams: None) -> None:
    with pytest.raises(SetupError):
        await apply(store, TEAM.format(id="team_1") + DOMAIN.format(n=1) * 2)
    assert await list_entries(store) == []


async def test_setup_file_does_not_change_the_currency_of_a_team_with_ledger_entries(store: Store) -> None:
    await apply(store, TEAM.format(id="team_a") + 'currency = "EUR"\n')
    await apply(store, TEAM.format(id="team_a") + 'currency = "USD"\n')  # nothing is booked yet
    await adjust_credit(store, COMMAND_LINE, CreditAdjustment(team="team_a", amount="10"))
    await apply(store, TEAM.format(id="team_a") + 'currency = "USD"\nname = "A"\n')
    text = TEAM.format(id="team_b") + TEAM.format(id="team_a") + 'currency = "EUR"\n'
    for function in (apply, preview):
        with pytest.raises(SetupError, match=r"^setup\.toml: teams\[1\]\.currency: team_a has amounts booked in USD"):
            await function(store, text)
    assert store.setup.current.teams["team_a"].record.currency == "USD"
    assert "team_b" not in store.setup.current.teams


async def test_webhook_keys_are_generated_outside_the_write_lock(store: Store, teams: None) -> None:
    """RSA keys take seconds: neither the event loop nor a transaction may wait for them."""
    made_in = list[str]()

    def make() -> tuple[bytes, str]:
        made_in.append(threading.current_thread().name)
        return b"private", "public"

    file = parse_setup_file(TEAM.format(id="team_1") + POSTAL.format(n=1) + POSTAL.format(n=2), {})
    for _ in range(2):  # again, nothing is new
        vault = Cipher(bytes(32))
        await setup.apply(store, COMMAND_LINE, file, vault=vault, make_secret=str, make_pair=make)
    assert len(made_in) == 2 and not any(name == "MainThread" or name.startswith("sqlite") for name in made_in)
    assert {hook.public_key for hook in store.setup.current.teams["team_1"].webhooks} == {"public"}
