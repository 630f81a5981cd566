"""The table of all changes that people can make: how a test makes each change, and its audit entry."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from heliograph.dashboard.page_request import SESSION_COOKIE
from heliograph.dashboard.views.passkeys import CHALLENGE_COOKIE as PASSKEY
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.setup.key_restrictions import restrictions_revision
from heliograph.domain.setup.keys import parse_token
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.people import Identity
from heliograph.templates.policy.layout_drafts import find_draft
from heliograph.templates.policy.template_approvals import revision_of
from tests.accounts.authenticator import Authenticator
from tests.accounts.house import PASSWORD
from tests.dashboard.inside import write_records
from tests.manage.edges import CLIENT_ADDRESS, EdgeResponse, Entry, Environment, MakeValues, Values

TEAM = "/dashboard/teams/{team}"
OPERATOR = "/dashboard/operator"
RESEND, TWILIO, POSTMARK = "/compat/resend", "/compat/twilio", "/compat/postmark"
MESSAGES = f"{TWILIO}/2010-04-01/Accounts/{{account}}/Messages"
VERIFICATIONS = f"{TWILIO}/v2/Services/{{service}}/Verification"
URL = "https://1.1.1.1/hooks/{n}"  # nothing is sent to this URL
DELIVERIES = frozenset({"delivery", "attempt", "endpoint"})
PORTIONS = frozenset({"import_portion"})
IMPORTED = frozenset({"suppression_import", "suppression", "event", "delivery"})
NEW_PASSWORD = "battery horse correct"


async def make_nothing(world: Environment) -> Values:
    return {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Text in braces is replaced by the results of `make`, by `n` (a unique number), and by `team`."""

    edge: Literal["page", "route", "command"]
    target: str  # a path of PAGES, a method and path of ROUTES, or a command
    action: str
    request: Any = {}  # form, body or arguments
    make: MakeValues = make_nothing
    actor_name: str = "owner"  # user of a page
    team: str | None = "{team}"  # team of the audit entry
    file: str = ""  # file to upload
    is_idempotent: bool = False  # a repetition changes nothing
    also_watched: frozenset[str] = frozenset()  # additional tables to watch
    written_before: frozenset[str] = (
        frozenset()
    )  # tables written in batches before the audit entry, without effect until then
    written_after: frozenset[str] = frozenset()  # tables written in batches after the audit entry
    has_two_entries: bool = False  # several transactions, with an audit entry in the first and in the last
    variant: str = ""

    @property
    def key(self) -> str:
        """Return the API key for a route."""
        return "PLATFORM" if re.search(" /v1/(teams|approvals)", self.target) else "ACME"

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.edge, self.target.replace("/dashboard", ""), self.variant)))

    async def run(self, world: Environment, values: Values) -> EdgeResponse:
        if "secret" in values:
            values = values | {"code": world.totp_code(values["secret"])}
        filled = fill_placeholders(self.request, values)
        if self.edge == "command":
            return world.command(*self.target.split(), *filled)
        if self.edge == "page":
            return await world.post_form(
                fill_placeholders(self.target, values), filled, values.get("who", self.actor_name), self.file
            )
        method, path = self.target.split()
        return await world.call_api(method, fill_placeholders(path, values), filled or None, self.key)

    def entry(self, world: Environment, values: Values) -> Entry:
        if self.edge == "command":
            actor = "command line"
        elif self.edge == "route":
            actor = f"key {parse_token(world.tokens[self.key])}"
        else:
            actor = values.get("actor") or world.people[values.get("who", self.actor_name)][0]
        address = "" if self.edge == "command" else CLIENT_ADDRESS
        return Entry(actor, self.action, self.team and fill_placeholders(self.team, values), address)


def fill_placeholders(template: Any, values: Values) -> Any:
    if isinstance(template, str):
        return template.format_map(values)
    if isinstance(template, Mapping):
        return {name: fill_placeholders(value, values) for name, value in template.items()}
    return [fill_placeholders(item, values) for item in template] if isinstance(template, Sequence) else template


def page(
    path: str, action: str, form: Mapping[str, str] = {}, make: MakeValues = make_nothing, **options: Any
) -> Change:
    usual = {"actor_name": "operator"} if path.startswith(OPERATOR) else {}
    team = {} if "{team}" in path else {"team": None}
    return Change(edge="page", target=path, action=action, request=form, make=make, **usual | team | options)


def route(what: str, action: str, body: Any = (), make: MakeValues = make_nothing, **options: Any) -> Change:
    return Change(edge="route", target=what, action=action, request=body, make=make, **options)


def command(what: str, action: str, *arguments: str, make: MakeValues = make_nothing, **options: Any) -> Change:
    return Change(edge="command", target=what, action=action, request=arguments, make=make, **options)


# -- what they are about: made through an edge ------------------------------------------------------------------------


async def make_key(world: Environment) -> Values:
    created = await world.run_command("key", "create", "--team", "team_acme", "--name", f"made {world.next_number()}")
    return {"key": parse_token(created.strip()) or ""}


async def make_webhook(world: Environment) -> Values:
    body = {"url": URL.format(n=world.next_number()), "events": ["*"]}
    return {"webhook": (await world.call_api("POST", "/v1/webhooks", body)).json["id"]}


async def make_team_chat(world: Environment) -> Values:
    assert (
        await world.post_form("/dashboard/teams/team_acme/notices", {"url": URL.format(n=world.next_number())}, "owner")
    ).ok
    return {}


async def make_operator_chat(world: Environment) -> Values:
    assert (await world.post_form(f"{OPERATOR}/notices", {"url": URL.format(n=world.next_number())}, "operator")).ok
    return {}


async def make_disabled_webhook(world: Environment) -> Values:
    created = await make_webhook(world)
    assert (await world.call_api("PATCH", f"/v1/webhooks/{created['webhook']}", {"enabled": False})).ok
    return created


async def make_tested_webhook(world: Environment) -> Values:
    created = await make_webhook(world)
    message = await world.call_api("POST", f"/v1/webhooks/{created['webhook']}/test")
    return created | {"event": message.json["id"]}


async def make_suppression(world: Environment) -> Values:
    email = f"gone{world.next_number()}@example.com"
    assert (await world.call_api("POST", "/v1/suppressions", {"email": email})).ok
    return {"email": email}


async def make_postmark_webhook(world: Environment) -> Values:
    body = {"url": URL.format(n=world.next_number()), "events": ["*"], "format": "postmark"}
    created = (await world.call_api("POST", "/v1/webhooks", body)).json["id"]
    assert (await world.call_api("POST", f"/v1/webhooks/{created}/test")).ok
    return {"webhook": created}


async def make_stream(world: Environment) -> Values:
    return await make_suppression(world) | {"stream": "outbound"}


async def make_opt_out(world: Environment) -> Values:
    phone = f"+49151{world.next_number():0>8}"
    assert (await world.call_api("POST", "/v1/opt-outs", {"phone": phone, "channel": "sms"})).ok
    return {"phone": phone}


async def make_unsubscribe(world: Environment) -> Values:
    address = f"unsubscribed{world.next_number()}@example.com"
    body = {"address": address, "category": "newsletter"}
    assert (await world.call_api("POST", "/v1/unsubscribes", body)).ok
    return {"address": address}


async def make_export_file(world: Environment) -> Values:
    path = world.service.data / f"{world.next_number()}.csv"
    path.write_text(f"email,origin\nexported{world.next_number()}@example.com,bounce\n")
    return {"file": str(path)}


async def make_canceled_sms(world: Environment) -> Values:
    body = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "1"}}
    at = timestamp(world.house.store.clock.now() + HOUR_MS)
    sent = await world.call_api("POST", "/v1/sms", body | {"scheduled_at": at})
    assert (await world.call_api("POST", f"/v1/sms/{sent.json['id']}/cancel")).ok
    return {"sid": sent.json["id"], "account": "AC1"}


async def make_suppression_file(world: Environment) -> Values:
    path = world.service.data / f"{world.next_number()}.csv"
    path.write_text("listed@example.com\n")
    return {"file": str(path)}


async def make_domain(world: Environment) -> Values:
    name = f"d{world.next_number()}.test"
    return {"domain": name, "id": (await world.call_api("POST", "/v1/domains", {"name": name})).json["id"]}


async def make_moving_domain(world: Environment) -> Values:
    """Create a domain that moves from TXT to CNAME records."""
    created, setup = await make_domain(world), world.house.store.setup
    platform = msgspec.structs.replace(setup.current.platform, dkim_zone="dkim.heliograph.test")
    await write_records(world.house.store, ("platform", PLATFORM_ID, platform, None))
    assert (await world.call_api("POST", "/v1/domains", {"name": created["domain"], "dkim": "cname"})).ok
    return created


async def make_checked_domain(world: Environment) -> Values:
    created = await make_domain(world)
    assert (await world.call_api("POST", f"/v1/domains/{created['id']}/check")).ok
    return created


async def make_domain_by_command(world: Environment) -> Values:
    name = f"d{world.next_number()}.test"
    await world.run_command("domain", "add", name, "--team", "team_acme")
    return {"domain": name}


async def make_platform_domain(world: Environment) -> Values:
    """Create the platform's domain: the service does so at its first use."""
    await world.get_page(f"{OPERATOR}/platform/sender", "operator")
    return {}


async def make_display_name(world: Environment) -> Values:
    number = world.next_number()
    await world.apply_setup(
        '[[teams]]\nid = "team_acme"\n[[teams.domains]]\nid = "dom_acme"\nname = "acme.test"\n'
        f'[[teams.domains.display_names]]\nid = "dn_{number}"\nname = "Acme {number}"\n'
    )
    return {"kind": "display_name", "id": f"dn_{number}", "text": f"Send as Acme {number} from acme.test"}


async def make_refused_name(world: Environment) -> Values:
    created = await make_display_name(world)
    path, form = TEAM.format(team="team_acme"), {"kind": created["kind"], "id": created["id"], "reason": "no"}
    assert (await world.post_form(f"{path}/senders/decide", form, "operator")).ok
    return created


async def make_recipient_code(world: Environment) -> Values:
    """Send a confirmation code to a new recipient of the sandbox."""
    address = f"me{world.next_number()}@example.com"
    path = TEAM.format(team="team_sandbox")
    requested = await world.post_form(f"{path}/senders/recipients", {"address": address}, "owner")
    (code,) = re.findall(r"[A-Z2-7]{4}-[A-Z2-7]{4}", await world.get_page(requested.redirect_to, "owner"))
    return {"team": "team_sandbox", "address": address, "typed": code}


async def use_sandbox_team(world: Environment) -> Values:
    return {"team": "team_sandbox"}


async def make_layout(world: Environment) -> Values:
    id_ = f"lay_{world.next_number()}"
    await world.apply_setup(f'[[teams]]\nid = "team_acme"\n[[teams.layouts]]\nid = "{id_}"\ntext = "{{{{content}}}}"\n')
    return {"layout": id_}


async def make_layout_draft(world: Environment) -> Values:
    created = await make_layout(world)
    await world.call_api("PATCH", f"/v1/layouts/{created['layout']}", {"text": "- {{content}}"})
    return created


async def make_submitted_layout(world: Environment) -> Values:
    created = await make_layout_draft(world)
    await world.call_api("POST", f"/v1/layouts/{created['layout']}/submit", None)
    return created


async def make_layout_with_revision(world: Environment) -> Values:
    created = await make_submitted_layout(world)
    draft = find_draft(world.house.store.setup.current, created["layout"])
    assert draft
    return created | {"mark": revision_of(draft)}


async def make_template(world: Environment) -> Values:
    """Create a template with two versions."""
    id_ = f"tpl_{world.next_number()}"
    for text in ("First", "Second"):
        await world.apply_setup(_template_setup(id_, f'text = "{text}"'))
    return {"template": id_}


async def make_archived_template(world: Environment) -> Values:
    created = await make_template(world)
    path = f"{TEAM}/templates/{{template}}/archive".format(team="team_acme", **created)
    assert (await world.post_form(path, {}, "owner")).ok
    return created


async def make_draft(world: Environment) -> Values:
    id_ = f"tpl_{world.next_number()}"
    await world.apply_setup(_template_setup(id_, 'text = "Draft"\nstatus = "draft"'))
    shown = await world.get_page(f"{TEAM}/templates/{id_}".format(team="team_acme"), "operator")
    return {"template": id_, "mark": re.findall(r'name="mark" value="(\w+)"', shown)[0]}


async def make_template_with_revision(world: Environment) -> Values:
    created = await make_template(world)
    shown = await world.get_page(f"{TEAM}/templates/{created['template']}/edit".format(team="team_acme"), "owner")
    return created | {"mark": re.findall(r'name="mark" value="(\w+)"', shown)[0]}


async def make_unsubmitted_draft(world: Environment) -> Values:
    created = await make_template_with_revision(world)
    place = f"{TEAM}/templates/{created['template']}".format(team="team_acme")
    form = {"name": created["template"], "subject": "Hello", "text": "Third", "mark": created["mark"], "do": "draft"}
    await world.post_form(f"{place}/edit", form, "owner")
    shown = await world.get_page(place, "owner")
    return created | {"mark": re.findall(r'name="mark" value="(\w+)"', shown)[0]}


def _template_setup(id_: str, more: str) -> str:
    return (
        f'[[teams]]\nid = "team_acme"\n[[teams.templates]]\nid = "{id_}"\nchannel = "email"\n'
        f'name = "{id_}"\nsubject = "Hello"\n{more}\n'
    )


async def make_team(world: Environment, mode: str = "sandbox") -> Values:
    """Create a team that meets all requirements for going live."""
    number = world.next_number()
    await world.apply_setup(
        f'[[teams]]\nid = "team_{number}"\nname = "Team {number}"\nmode = "{mode}"\ncredit = "1.00"\n'
        f'[[teams.domains]]\nname = "t{number}.test"\nverified = true\napproved = true\n'
    )
    return {"team": f"team_{number}"}


async def make_live_team(world: Environment) -> Values:
    return await make_team(world, "live")


async def make_team_with_test_clock(world: Environment) -> Values:
    created = await make_team(world)
    await world.apply_setup(f'[[teams]]\nid = "{created["team"]}"\ntest_clock = true\n')
    return created


async def make_suspended_team(world: Environment) -> Values:
    created = await make_team(world)
    path = f"{OPERATOR}/teams/{created['team']}/suspend"
    assert (await world.post_form(path, {"suspended": "yes"}, "operator")).ok
    return created


async def make_team_to_be_deleted(world: Environment) -> Values:
    created = await make_team(world)
    assert (await world.call_api("DELETE", f"/v1/teams/{created['team']}", key="PLATFORM")).ok
    return created


async def make_paused_team(world: Environment) -> Values:
    """Create a team that was paused because of its reputation."""
    created, now = await make_team(world), world.house.clock.now()
    ref = world.house.store.setup.current.teams[created["team"]].record.ref
    await world.sql(f"INSERT INTO reputation VALUES ({ref}, {now - now % HOUR_MS}, 1000, 500, 0)")
    assert await world.house.store.reputations.update_all()
    return created


async def make_person(world: Environment) -> Values:
    name = await world.make_person()
    return {"person": world.people[name][0], "email": f"{name}@example.com", "self": name}


async def make_actor(world: Environment) -> Values:
    """Create a user who changes their own account."""
    return {"who": await world.make_person()}


async def make_actor_with_two_sessions(world: Environment) -> Values:
    who = await world.make_person()
    assert (await world.house.browser().sign_in(f"{who}@example.com")).status == 303
    return {"who": who}


async def make_actor_with_totp_secret(world: Environment) -> Values:
    """Create a user who is about to enable TOTP."""
    who = await world.make_person()
    shown = await world.get_page("/dashboard/account/totp", who)
    (secret,) = re.findall(r"<code>([A-Z2-7 ]+)</code>", shown)
    (sealed,) = re.findall(r'name="sealed" value="([^"]+)"', shown)
    return {"who": who, "secret": secret.replace(" ", ""), "sealed": sealed}


async def make_actor_with_totp(world: Environment) -> Values:
    created = await make_actor_with_totp_secret(world)
    form = {"sealed": created["sealed"], "code": world.totp_code(created["secret"]), "check": PASSWORD}
    assert (await world.post_form("/dashboard/account/totp", form, created["who"])).ok
    return created


async def make_actor_with_device(world: Environment) -> Values:
    """Create a user whose device has answered the challenge of a new passkey."""
    who, device, browser = await world.make_person(), Authenticator(), world.house.browser()
    browser.cookies = {SESSION_COOKIE: world.people[who][1]}
    answer = device.make((await browser.get("/dashboard/account/passkeys/new")).body)
    world.passkey_cookies[who] = browser.cookies[PASSKEY]
    return {"who": who, "credential": answer, "passkey": json.loads(answer)["id"]}


async def make_actor_with_passkey(world: Environment) -> Values:
    created = await make_actor_with_device(world)
    form = {"passkey": "Phone", "check": PASSWORD, "credential": created["credential"]}
    assert (await world.post_form("/dashboard/account/passkeys", form, created["who"])).ok
    return created


async def make_person_of_provider(world: Environment) -> Values:
    created = await make_person(world)
    who = Identity(issuer="https://id.example.com", subject=created["person"], email=created["email"], name="")
    entry = COMMAND_LINE.audit_entry(world.house.clock.now(), "", created["email"])
    assert not isinstance(await world.house.people.sign_in_with_identity(who, entry, may_create=False), str)
    return created


async def make_person_with_totp(world: Environment) -> Values:
    who = (await make_actor_with_totp(world))["who"]
    return {"person": world.people[who][0], "email": f"{who}@example.com"}


async def make_invited_actor(world: Environment) -> Values:
    who = await world.make_person()
    await world.run_command("user", "add", f"{who}@example.com", "--team", "team_acme", "--role", "viewer")
    return {"who": who}


async def make_member(world: Environment) -> Values:
    name = await world.make_person(team_acme="viewer")
    return {"person": world.people[name][0], "email": f"{name}@example.com"}


async def make_reset_link(world: Environment) -> Values:
    created = await make_person(world)
    link = await world.run_command("user", "link", created["email"])
    return {"token": link.strip().rpartition("/")[2], "actor": created["person"], "who": ""}


async def make_invitation(world: Environment) -> Values:
    email = f"new{world.next_number()}@example.com"
    link = await world.run_command("user", "add", email, "--team", "team_acme")
    return {"token": link.strip().rpartition("/")[2], "actor": await world.house.id_of(email), "who": ""}


async def make_platform_key(world: Environment) -> Values:
    name = f"crm {world.next_number()}"
    created = await world.run_command("key", "create", "--platform", "--name", name)
    return {"key": parse_token(created.strip()) or ""}


async def make_portal_link(world: Environment) -> Values:
    link = await world.call_api("POST", "/v1/teams/team_acme/portal", {"pages": ["keys"]}, key="PLATFORM")
    actor = f"key {parse_token(world.tokens['PLATFORM'])}"
    return {"token": link.json["url"].rpartition("/")[2], "actor": actor, "who": ""}


async def make_failed_message(world: Environment) -> Values:
    mail = {"from": "hello@acme.test", "to": f"a{world.next_number()}@example.com", "subject": "Hello", "text": "Hello"}
    id_ = (await world.call_api("POST", "/v1/emails", mail)).json["id"]
    ((key,),) = await world.sql(f"SELECT key FROM message WHERE id = '{id_}'")
    await world.sql(f"DELETE FROM outbox WHERE message = {key}")
    await world.sql(f"UPDATE message SET status = 'failed', ended_at = created_at WHERE key = {key}")
    await world.sql(f"UPDATE recipient SET status = 'failed' WHERE message = {key}")
    return {"message": id_, "place": f"{key}-0"}


async def make_held_message(world: Environment) -> Values:
    key = {"name": f"agent {world.next_number()}", "restrictions": {"approval": "required"}}
    world.tokens["AGENT"] = (await world.call_api("POST", "/v1/keys", key)).json["token"]
    mail = {"from": "hello@acme.test", "to": f"a{world.next_number()}@example.com", "subject": "Hello", "text": "Hello"}
    id_ = (await world.call_api("POST", "/v1/emails", mail, "AGENT")).json["id"]
    return {"message": id_, "approval": f"apr_{id_.partition('_')[2]}"}


async def make_dead_letter(world: Environment) -> Values:
    created = await make_failed_message(world)
    key, _ = created["place"].split("-")
    dead = """updated_at = 1, detail = '{"reason":"quarantined"}'"""  # in the past for the clocks of all edges
    await world.sql(f"UPDATE recipient SET {dead} WHERE message = {key}")
    return created | {"until": str(world.house.clock.now() + HOUR_MS)}


async def make_carrier(world: Environment) -> Values:
    id_ = f"sim-{world.next_number()}"
    item = '[[carriers]]\nid = "{}"\nchannel = "email"\nkind = "simulator"\nenabled = false\npriority = {}\n'
    await world.apply_setup(item.format(f"first-{id_}", 1) + item.format(id_, 2))
    return {"carrier": id_}


async def make_setup_file(world: Environment) -> Values:
    number = world.next_number()
    path = world.service.data / f"{number}.toml"
    path.write_text(f'[[teams]]\nid = "team_acme"\n[[teams.templates]]\nid = "tpl_{number}"\nname = "{number}"\n'
                    'channel = "email"\nsubject = "Hello"\ntext = "Hello"\n')  # fmt: skip
    return {"file": str(path)}


async def replace_secret(world: Environment) -> Values:
    """Make the database use a master secret of another folder."""
    await world.run_command("secret", "replace", "--data", str(world.service.data / "other"))
    return {}


async def resume_delivery(world: Environment) -> Values:
    await world.run_command("resume")
    return {}


async def pause_delivery(world: Environment) -> Values:
    await world.run_command("pause")
    return {}


# -- the table --------------------------------------------------------------------------------------------------------

CHANGES = [
    # a person's own account
    page("/dashboard/account/name", "account.name", {"name": "Ada {n}"}, make_actor, is_idempotent=True),
    page("/dashboard/account/notices", "account.notices", {"/dead_letters": "yes"}, actor_name="operator",
         is_idempotent=True),
    page(f"{TEAM}/notices", "chat.set", {"url": URL}),
    page(f"{TEAM}/notices/test", "chat.test", {}, make_team_chat),
    page(f"{TEAM}/notices/remove", "chat.remove", {}, make_team_chat, is_idempotent=True),
    page(f"{OPERATOR}/notices", "chat.set", {"url": URL}),
    page(f"{OPERATOR}/notices/test", "chat.test", {}, make_operator_chat),
    page(f"{OPERATOR}/notices/remove", "chat.remove", {}, make_operator_chat, is_idempotent=True),
    page("/dashboard/account/password", "account.password", {"old": PASSWORD, "new": NEW_PASSWORD}, make_actor,
         is_idempotent=True),
    page("/dashboard/account/sessions", "account.sessions", {}, make_actor_with_two_sessions,
         also_watched=frozenset({"session"}),
         is_idempotent=True),
    page("/dashboard/account/totp", "account.totp", {"sealed": "{sealed}", "code": "{code}", "check": PASSWORD},
         make_actor_with_totp_secret, is_idempotent=True),
    page("/dashboard/account/passkeys", "account.passkey",
         {"passkey": "Phone", "check": PASSWORD, "credential": "{credential}"}, make_actor_with_device,
         is_idempotent=True),
    page("/dashboard/account/passkeys/remove", "account.passkey", {"id": "{passkey}"}, make_actor_with_passkey,
         is_idempotent=True),
    page("/dashboard/account/totp/off", "account.totp", {"code": "{code}"}, make_actor_with_totp, is_idempotent=True),
    page("/dashboard/invitations", "member.accept", {"team": "team_acme", "answer": "accept"}, make_invited_actor,
         team="team_acme", is_idempotent=True),
    page("/dashboard/invitations", "member.decline", {"team": "team_acme", "answer": "decline"}, make_invited_actor,
         team="team_acme", is_idempotent=True, variant="decline"),
    page("/dashboard/link/{token}", "account.password", {"password": NEW_PASSWORD}, make_reset_link,
         is_idempotent=True),
    page("/dashboard/link/{token}", "member.accept", {"password": NEW_PASSWORD}, make_invitation, team="team_acme",
         is_idempotent=True, variant="invitation"),
    page("/dashboard/portal/open/{token}", "portal.open", {}, make_portal_link, team="team_acme", is_idempotent=True),
    # people of a team, and of the instance
    page(f"{TEAM}/team", "member.invite", {"email": "m{n}@example.com", "role": "viewer"}, is_idempotent=True),
    page(f"{TEAM}/team/{{person}}/role", "member.role", {"role": "developer"}, make_member, is_idempotent=True),
    page(f"{TEAM}/team/{{person}}/link", "link.reset", {}, make_member),
    page(f"{TEAM}/team/{{person}}/remove", "member.remove", {}, make_member, is_idempotent=True),
    page(f"{OPERATOR}/people", "person.add", {"email": "p{n}@example.org"}, is_idempotent=True),
    page(f"{OPERATOR}/people/{{person}}/operator", "person.operator", {"operator": "yes"}, make_person),
    page(f"{OPERATOR}/people/{{person}}/link", "person.link", {}, make_person),
    page(f"{OPERATOR}/people/{{person}}/role", "member.invite", {"team": "team_acme", "role": "viewer"}, make_person,
         team="team_acme"),
    page(f"{OPERATOR}/people/{{person}}/role", "member.role", {"team": "team_acme", "role": "developer"}, make_member,
         team="team_acme", is_idempotent=True, variant="of a member"),
    page(f"{OPERATOR}/people/{{person}}/totp", "person.totp", {}, make_person_with_totp, is_idempotent=True),
    page(f"{OPERATOR}/people/{{person}}/provider", "person.provider", {}, make_person_of_provider, is_idempotent=True),
    page(f"{OPERATOR}/people/{{person}}/sessions", "person.sessions", {}, make_person,
         also_watched=frozenset({"session"}),
         is_idempotent=True),
    page(f"{OPERATOR}/people/{{person}}/remove", "person.remove", {}, make_person, is_idempotent=True),
    command("user add", "person.add", "new{n}@example.com", team=None),
    command("user add", "member.invite", "new{n}@example.com", "--team", "{team}", variant="to a team"),
    command("user link", "person.link", "{email}", make=make_person, team=None),
    command("user link", "person.link", "{email}", "--without-code", make=make_person_with_totp, team=None,
            variant="without a code"),
    command("user role", "member.role", "{email}", "{team}", "developer", make=make_member, is_idempotent=True),
    command("user role", "member.remove", "{email}", "{team}", "none", make=make_member, is_idempotent=True,
            variant="none"),
    command("user sign-out", "person.sessions", "{email}", make=make_person, team=None, is_idempotent=True,
            also_watched=frozenset({"session"})),
    command("user remove", "person.remove", "{email}", make=make_person, team=None, is_idempotent=True),
    # keys
    page(f"{TEAM}/keys", "key.create", {"name": "key {n}", "send": "yes"}, is_idempotent=True),
    page(f"{TEAM}/keys", "key.create", {"name": "hook {n}", "send": "yes", "kind": "hook"}, is_idempotent=True),
    page(f"{TEAM}/keys/{{key}}/restrictions", "key.restrict", {"per_day": "5", "mark": restrictions_revision(None)},
         make_key, is_idempotent=True),
    page(f"{TEAM}/keys/{{key}}/rotate", "key.rotate", {}, make_key),
    page(f"{TEAM}/keys/{{key}}/revoke", "key.revoke", {}, make_key, is_idempotent=True),
    route("POST /v1/keys", "key.create", {"name": "key {n}"}, is_idempotent=True),
    route("POST /v1/keys/{key}/rotate", "key.rotate", {}, make_key),
    route("DELETE /v1/keys/{key}", "key.revoke", {}, make_key, is_idempotent=True),
    command("key create", "key.create", "--team", "{team}", "--name", "key {n}", is_idempotent=True),
    command("key create", "key.create", "--team", "{team}", "--name", "hook {n}", "--hook", is_idempotent=True),
    command("key rotate", "key.rotate", "{key}", make=make_key),
    command("key revoke", "key.revoke", "{key}", make=make_key, is_idempotent=True),
    # webhooks
    page(f"{TEAM}/webhooks", "webhook.create", {"url": URL, "all": "yes"}),
    page(f"{TEAM}/webhooks/{{webhook}}", "webhook.change", {"url": URL, "sms.*": "yes"}, make_webhook,
         is_idempotent=True),
    page(f"{TEAM}/webhooks/{{webhook}}/switch", "webhook.disable", {}, make_webhook, is_idempotent=True),
    page(f"{TEAM}/webhooks/{{webhook}}/switch", "webhook.enable", {"enabled": "yes"}, make_disabled_webhook,
         is_idempotent=True,
         variant="on"),
    page(f"{TEAM}/webhooks/{{webhook}}/rotate", "webhook.rotate", {}, make_webhook),
    page(f"{TEAM}/webhooks/{{webhook}}/remove", "webhook.remove", {}, make_tested_webhook, is_idempotent=True,
         written_after=DELIVERIES),
    page(f"{TEAM}/webhooks/{{webhook}}/test", "webhook.test", {}, make_webhook),
    page(f"{TEAM}/webhooks/{{webhook}}/replay", "webhook.replay", {"event": "{event}"}, make_tested_webhook),
    route("POST /v1/webhooks", "webhook.create", {"url": URL, "events": ["*"]}),
    route("PATCH /v1/webhooks/{webhook}", "webhook.change", {"url": URL}, make_webhook, is_idempotent=True),
    route("DELETE /v1/webhooks/{webhook}", "webhook.remove", {}, make_tested_webhook, is_idempotent=True,
          written_after=DELIVERIES),
    route("POST /v1/webhooks/{webhook}/rotate", "webhook.rotate", {}, make_webhook),
    route("POST /v1/webhooks/{webhook}/test", "webhook.test", {}, make_webhook),
    route("POST /v1/webhooks/{webhook}/replay", "webhook.replay", {"event_id": "{event}"}, make_tested_webhook),
    # messages of a person, and the inbox
    page(f"{TEAM}/test", "message.test", {}),
    page(f"{TEAM}/messages/{{message}}/resend", "message.resend", {}, make_failed_message),
    page(f"{TEAM}/approvals/{{approval}}/release", "message.release", {}, make_held_message, is_idempotent=True),
    page(f"{TEAM}/approvals/{{approval}}/reject", "message.reject", {}, make_held_message, is_idempotent=True),
    page(f"{TEAM}/templates/{{template}}/send", "template.test",
         {"to": "delivered@simulator.test", "from": "a@acme.test"}, make_template),
    page(f"{TEAM}/inbox", "inbox.clear", {}),
    page(f"{TEAM}/inbox/{{message}}/delete", "inbox.delete", {}, make_failed_message, is_idempotent=True),
    # opt-outs
    page(f"{TEAM}/opt-outs", "opt_out.add", {"phone": "+49160{n:0>8}", "channel": "sms"}, is_idempotent=True),
    page(f"{TEAM}/opt-outs/remove", "opt_out.remove", {"phone": "{phone}", "channel": "sms"}, make_opt_out,
         is_idempotent=True),
    route("POST /v1/opt-outs", "opt_out.add", {"phone": "+49161{n:0>8}", "channel": "sms"}, is_idempotent=True),
    route("DELETE /v1/opt-outs/{phone}", "opt_out.remove", {}, make_opt_out, is_idempotent=True),
    # unsubscribes
    page(f"{TEAM}/unsubscribes", "unsubscribe.add", {"address": "u{n}@example.com", "category": "newsletter"},
         is_idempotent=True),
    page(f"{TEAM}/unsubscribes/remove", "unsubscribe.remove", {"address": "{address}", "category": "newsletter"},
         make_unsubscribe, is_idempotent=True),
    route("POST /v1/unsubscribes", "unsubscribe.add", {"address": "v{n}@example.com", "category": "newsletter"},
          is_idempotent=True),
    route("DELETE /v1/unsubscribes/{address}", "unsubscribe.remove", {}, make_unsubscribe, is_idempotent=True),
    # suppressions and erasing
    page(f"{TEAM}/suppressions", "suppression.add", {"email": "s{n}@example.com"}, is_idempotent=True),
    page(f"{TEAM}/suppressions/remove", "suppression.remove", {"email": "{email}"}, make_suppression,
         is_idempotent=True),
    page(f"{TEAM}/suppressions/import", "suppression.import", {}, make_team, actor_name="operator",
         file="a@example.com\n",
         written_before=PORTIONS),
    page(f"{TEAM}/suppressions/erase", "address.erase", {"address": "{email}", "sure": "yes"}, make_suppression,
         has_two_entries=True),
    route("POST /v1/suppressions", "suppression.add", {"email": "s{n}@example.com"}, is_idempotent=True),
    route("DELETE /v1/suppressions/{email}", "suppression.remove", {}, make_suppression, is_idempotent=True),
    command("suppression import", "suppression.import", "{file}", "--team", "{team}", make=make_suppression_file,
            written_before=PORTIONS,
            written_after=IMPORTED),
    command("erase", "address.erase", "{email}", "--team", "{team}", "--yes", make=make_suppression,
            has_two_entries=True),
    command("export", "address.export", "{email}", "--team", "{team}", make=make_suppression),
    # domains, names, sender ids, recipients
    page(f"{TEAM}/senders/domains", "domain.add", {"domain": "a{n}.test"}, is_idempotent=True),
    page(f"{TEAM}/senders/domains/{{id}}/check", "domain.verified", {}, make_domain, is_idempotent=True),
    page(f"{TEAM}/senders/domains/{{id}}/rotate", "domain.rotate", {}, make_domain, is_idempotent=True),
    page(f"{TEAM}/senders/domains/{{id}}/dkim", "domain.keys", {"dkim": "txt"}, make_moving_domain,
         is_idempotent=True),
    page(f"{TEAM}/senders/domains/{{id}}/brand", "domain.brand", {"brand": "Brand {n}"}, make_domain,
         is_idempotent=True),
    page(f"{TEAM}/senders/domains/{{id}}/remove", "domain.remove", {}, make_domain, is_idempotent=True),
    page(f"{OPERATOR}/platform/mail-host", "platform.change", {"mail_host": "mail{n}.test"}, is_idempotent=True),
    page(f"{OPERATOR}/platform/sender/check", "domain.verified", {}, make_platform_domain),
    page(f"{OPERATOR}/platform/sender/rotate", "domain.rotate", {}, make_platform_domain, is_idempotent=True),
    page(f"{TEAM}/senders/names", "display_name.submit", {"name": "Name {n}", "of": "dom_acme"}, is_idempotent=True),
    page(f"{TEAM}/senders/sender-ids", "sender_id.submit", {"country": "FR", "value": "ACME{n}"}, is_idempotent=True),
    page(f"{TEAM}/senders/remove", "display_name.remove", {"kind": "display_name", "id": "{id}"}, make_display_name,
         is_idempotent=True),
    page(f"{TEAM}/senders/ask", "display_name.submit", {"kind": "display_name", "id": "{id}"}, make_refused_name,
         is_idempotent=True),
    page(f"{TEAM}/senders/decide", "display_name.approve",
         {"kind": "display_name", "id": "{id}", "approve": "yes"}, make_display_name, actor_name="operator",
         is_idempotent=True),
    page(f"{OPERATOR}/approvals/{{team}}", "display_name.approve",
         {"kind": "display_name", "id": "{id}", "text": "{text}", "approve": "yes"}, make_display_name,
         is_idempotent=True),
    page(f"{OPERATOR}/approvals/{{team}}/reopen", "display_name.reopen",
         {"kind": "display_name", "said": "{text}"}, make_refused_name, is_idempotent=True),
    page(f"{OPERATOR}/approvals/{{team}}/templates/{{template}}", "template.approve",
         {"mark": "{mark}", "approve": "yes"}, make_draft, is_idempotent=True),
    page(f"{TEAM}/senders/recipients", "recipient.ask", {"address": "r{n}@example.com"}, use_sandbox_team),
    page(f"{TEAM}/senders/recipients/confirm", "recipient.add", {"address": "{address}", "code": "{typed}"},
         make_recipient_code,
         is_idempotent=True),
    route("POST /v1/domains", "domain.add", {"name": "a{n}.test"}, is_idempotent=True),
    route("POST /v1/domains/{id}/check", "domain.verified", {}, make_domain, is_idempotent=True),
    route("POST /v1/domains/{id}/rotate", "domain.rotate", {}, make_domain, is_idempotent=True),
    command("domain add", "domain.add", "a{n}.test", "--team", "{team}", is_idempotent=True),
    command("domain check", "domain.verified", "{domain}", make=make_domain_by_command, is_idempotent=True),
    command("domain rotate", "domain.rotate", "{domain}", make=make_domain_by_command, is_idempotent=True),
    command("domain brand", "domain.brand", "{domain}", "Brand {n}", make=make_domain_by_command, is_idempotent=True),
    command("domain remove", "domain.remove", "{domain}", make=make_domain_by_command, is_idempotent=True),
    command("approval approve", "display_name.approve", "{id}", make=make_display_name, is_idempotent=True),
    command("approval refuse", "display_name.refuse", "{id}", "--reason", "no", make=make_display_name,
            is_idempotent=True),
    # calls of Resend's clients
    route(f"POST {RESEND}/domains", "domain.add", {"name": "r{n}.test"}),
    route(f"POST {RESEND}/domains/{{id}}/verify", "domain.verified", {}, make_domain, is_idempotent=True),
    route(f"DELETE {RESEND}/domains/{{id}}", "domain.remove", {}, make_domain, is_idempotent=True),
    route(f"POST {RESEND}/webhooks", "webhook.create", {"endpoint": URL, "events": ["email.sent"]}),
    route(f"PATCH {RESEND}/webhooks/{{webhook}}", "webhook.change", {"endpoint": URL}, make_webhook,
          is_idempotent=True),
    route(f"DELETE {RESEND}/webhooks/{{webhook}}", "webhook.remove", {}, make_tested_webhook, is_idempotent=True,
          written_after=DELIVERIES),
    route(f"POST {RESEND}/webhooks/{{webhook}}/signing-secret/rotate", "webhook.rotate", {}, make_webhook),
    route(f"POST {RESEND}/webhooks/{{webhook}}/events/{{event}}/replay", "webhook.replay", {}, make_tested_webhook),
    route(f"POST {RESEND}/suppressions", "suppression.add", {"email": "r{n}@example.com"}, is_idempotent=True),
    route(f"DELETE {RESEND}/suppressions/{{email}}", "suppression.remove", {}, make_suppression, is_idempotent=True),
    route(f"POST {RESEND}/suppressions/batch/add", "suppression.add", {"emails": ["r{n}@example.com"]},
          is_idempotent=True),
    route(f"POST {RESEND}/suppressions/batch/remove", "suppression.remove", {"ids": ["{email}"]}, make_suppression,
          is_idempotent=True),
    route(f"POST {RESEND}/api-keys", "key.create", {"name": "key {n}"}, is_idempotent=True),
    route(f"DELETE {RESEND}/api-keys/{{key}}", "key.revoke", {}, make_key, is_idempotent=True),
    route(f"POST {RESEND}/templates", "template.save", {"name": "R{n}", "subject": "Hello", "text": "Hello"}),
    route(f"PATCH {RESEND}/templates/{{template}}", "template.save", {"text": "Third"}, make_template),
    route(f"POST {RESEND}/templates/{{template}}/publish", "template.publish", {}, make_unsubmitted_draft,
          is_idempotent=True),
    route(f"POST {RESEND}/templates/{{template}}/duplicate", "template.save", {}, make_template),
    route(f"DELETE {RESEND}/templates/{{template}}", "template.archive", {}, make_template, is_idempotent=True),
    # calls of Postmark's clients
    route(f"POST {POSTMARK}/message-streams/{{stream}}/suppressions", "suppression.add",
          {"Suppressions": [{"EmailAddress": "p{n}@example.com"}]}, make_stream, is_idempotent=True),
    route(f"POST {POSTMARK}/message-streams/{{stream}}/suppressions/delete", "suppression.remove",
          {"Suppressions": [{"EmailAddress": "{email}"}]}, make_stream, is_idempotent=True),
    route(f"POST {POSTMARK}/templates", "template.publish", {"Name": "P{n}", "Subject": "Hi", "TextBody": "Hi"}),
    route(f"POST {POSTMARK}/templates/", "template.publish", {"Name": "P{n}", "Subject": "Hi", "TextBody": "Hi"}),
    route(f"PUT {POSTMARK}/templates/{{template}}", "template.publish", {"TextBody": "Third"}, make_template),
    route(f"DELETE {POSTMARK}/templates/{{template}}", "template.archive", {}, make_template),
    route(f"POST {POSTMARK}/webhooks", "webhook.create", {"Url": URL, "Triggers": {"Bounce": {"Enabled": True}}}),
    route(f"PUT {POSTMARK}/webhooks/{{webhook}}", "webhook.change", {"Url": URL}, make_postmark_webhook,
          is_idempotent=True),
    route(f"DELETE {POSTMARK}/webhooks/{{webhook}}", "webhook.remove", {}, make_postmark_webhook,
          written_after=DELIVERIES),
    # calls of Twilio's clients
    route(f"POST {MESSAGES}/{{sid}}", "message.redact", {"Body": ""}, make_canceled_sms),
    route(f"DELETE {MESSAGES}/{{sid}}", "message.delete", {}, make_canceled_sms, is_idempotent=True),
    # layouts
    route("POST /v1/layouts", "layout.save", {"name": "L{n}", "text": "{{{{content}}}}"}),
    route("PATCH /v1/layouts/{layout}", "layout.save", {"text": "-- {{{{content}}}}"}, make_layout, is_idempotent=True),
    route("POST /v1/layouts/{layout}/submit", "layout.submit", {}, make_layout_draft, is_idempotent=True),
    route("POST /v1/layouts/{layout}/archive", "layout.archive", {}, make_layout, is_idempotent=True),
    page(f"{TEAM}/layouts/new", "layout.publish", {"name": "L{n}", "text": "{{{{content}}}}"}),
    page(f"{TEAM}/layouts/{{layout}}/edit", "layout.publish",
         {"name": "{layout}", "text": "+ {{{{content}}}}", "mark": "{mark}"}, make_layout_with_revision),
    page(f"{TEAM}/layouts/{{layout}}/edit", "layout.save",
         {"name": "{layout}", "text": "+ {{{{content}}}}", "mark": "{mark}", "do": "draft"},
         make_layout_with_revision, variant="as a draft"),
    page(f"{TEAM}/layouts/{{layout}}/publish", "layout.publish", {"mark": "{mark}"}, make_layout_with_revision),
    page(f"{TEAM}/layouts/{{layout}}/archive", "layout.archive", {}, make_layout, is_idempotent=True),
    page(f"{OPERATOR}/approvals/{{team}}/layouts/{{layout}}", "layout.approve",
         {"mark": "{mark}", "approve": "yes"}, make_layout_with_revision),
    page(f"{OPERATOR}/approvals/{{team}}/layouts/{{layout}}", "layout.refuse",
         {"mark": "{mark}", "reason": "No."}, make_layout_with_revision, variant="refused"),
    command("approval approve", "layout.approve", "{layout}", make=make_submitted_layout, is_idempotent=True,
            variant="of a layout"),
    # templates
    route("POST /v1/templates", "template.save", {"channel": "email", "name": "V{n}", "subject": "S", "text": "Hello"}),
    route("PATCH /v1/templates/{template}", "template.save", {"text": "Third"}, make_template, is_idempotent=True),
    route("POST /v1/templates/{template}/submit", "template.submit", {}, make_unsubmitted_draft, is_idempotent=True),
    route("POST /v1/templates/{template}/archive", "template.archive", {}, make_template, is_idempotent=True),
    page(f"{TEAM}/templates/new", "template.publish", {"name": "T{n}", "subject": "Hello", "text": "Hello"}),
    page(f"{TEAM}/templates/{{template}}/edit", "template.publish",
         {"name": "{template}", "subject": "Hello", "text": "Third", "mark": "{mark}"}, make_template_with_revision),
    page(f"{TEAM}/templates/{{template}}/edit", "template.save",
         {"name": "{template}", "subject": "Hello", "text": "Third", "mark": "{mark}", "do": "draft"},
         make_template_with_revision, variant="as a draft"),
    page(f"{TEAM}/templates/{{template}}/publish", "template.publish", {"mark": "{mark}"}, make_unsubmitted_draft),
    page(f"{TEAM}/templates/{{template}}/restore", "template.restore", {"version": "1"}, make_template,
         is_idempotent=True),
    page(f"{TEAM}/templates/{{template}}/archive", "template.archive", {}, make_template, is_idempotent=True),
    page(f"{TEAM}/templates/{{template}}/unarchive", "template.unarchive", {}, make_archived_template,
         is_idempotent=True),
    page(f"{TEAM}/templates/{{template}}/discard", "template.discard", {}, make_draft, is_idempotent=True),
    page(f"{TEAM}/templates/{{template}}/approve", "template.approve", {"mark": "{mark}"}, make_draft,
         actor_name="operator",
         is_idempotent=True),
    page(f"{TEAM}/templates/{{template}}/refuse", "template.refuse", {"mark": "{mark}", "reason": "no"}, make_draft,
         actor_name="operator", is_idempotent=True),
    command("approval approve", "template.approve", "{template}", make=make_draft, is_idempotent=True,
            variant="of a template"),
    command("approval refuse", "template.refuse", "{template}", "--reason", "no", make=make_draft, is_idempotent=True,
            variant="of a template"),
    # a team, its plan and its money
    page(f"{TEAM}/settings", "team.change", {"name": "Name {n}", "credit_low": "1.00", "approval_hours": "48"},
         make_team, actor_name="operator", is_idempotent=True),
    page(f"{TEAM}/settings/keep", "team.keep", {"keep_content_days": "3", "keep_messages_days": "9"}, make_team,
         actor_name="operator", is_idempotent=True),
    page(f"{TEAM}/settings/categories", "team.categories", {"categories": "newsletter, offers"}, make_team,
         actor_name="operator", is_idempotent=True),
    page(f"{TEAM}/settings/test-clock", "team.test_clock", {"on": "yes"}, make_team, actor_name="operator",
         is_idempotent=True),
    page(f"{TEAM}/settings/test-clock/advance", "team.advance", {"hours": "1"}, make_team_with_test_clock,
         actor_name="operator"),
    page(f"{TEAM}/settings/live", "team.live", {}, make_team, actor_name="operator", is_idempotent=True),
    page(f"{TEAM}/settings/sandbox", "team.sandbox", {}, make_live_team, actor_name="operator", is_idempotent=True),
    page(f"{OPERATOR}/teams", "team.create", {"id": "team_new{n}", "name": "Team {n}"}, team="team_new{n}",
         is_idempotent=True),
    page(f"{OPERATOR}/teams/{{team}}/plan", "team.plan",
         {"email_quota": "5", "rate_limit": "5", "marketing_per_day": "5", "domains_max": "5", "segmenting": "udh",
          "octets_per_day": "5", "catch": "on"},
         make_team, is_idempotent=True),
    page(f"{OPERATOR}/teams/{{team}}/suspend", "team.suspend", {"suspended": "yes"}, make_team, is_idempotent=True),
    page(f"{OPERATOR}/teams/{{team}}/suspend", "team.resume", {}, make_suspended_team, is_idempotent=True,
         variant="resume"),
    page(f"{OPERATOR}/teams/{{team}}/credit", "credit.book", {"amount": "1.00"}, make_team),
    page(f"{OPERATOR}/teams/{{team}}/reputation", "reputation.resume", {}, make_paused_team, is_idempotent=True),
    command("reputation resume", "reputation.resume", "{team}", make=make_paused_team, is_idempotent=True),
    page(f"{OPERATOR}/teams/{{team}}/delete", "team.delete", {}, make_team, is_idempotent=True),
    page(f"{OPERATOR}/teams/{{team}}/restore", "team.restore", {}, make_team_to_be_deleted, is_idempotent=True),
    page(f"{OPERATOR}/keys", "key.create", {"name": "key {n}"}, is_idempotent=True),
    page(f"{OPERATOR}/keys/{{key}}/revoke", "key.revoke", {}, make_platform_key, is_idempotent=True),
    # calls with a platform key
    route("POST /v1/teams", "team.create", {"id": "team_api{n}"}, team="team_api{n}", is_idempotent=True),
    route("PATCH /v1/teams/{team}", "team.change", {"email_quota": 7}, make_team, is_idempotent=True),
    route("DELETE /v1/teams/{team}", "team.delete", {}, make_team, is_idempotent=True),
    route("POST /v1/teams/{team}/restore", "team.restore", {}, make_team_to_be_deleted, is_idempotent=True),
    route("POST /v1/teams/{team}/keys", "key.create", {"name": "key {n}"}, is_idempotent=True),
    route("DELETE /v1/teams/{team}/keys/{key}", "key.revoke", {}, make_key, is_idempotent=True),
    route("POST /v1/teams/{team}/members", "member.invite", {"email": "m{n}@example.com", "role": "viewer"},
          is_idempotent=True),
    route("DELETE /v1/teams/{team}/members/{person}", "member.remove", {}, make_member, is_idempotent=True),
    route("POST /v1/teams/{team}/credit", "credit.book", {"amount": "1.00", "reference": "invoice {n}"}, make_team,
          is_idempotent=True),
    route("POST /v1/teams/{team}/portal", "portal.link", {"pages": ["keys"]}),
    route("POST /v1/approvals/{approval}/approve", "message.release", {"by": "Ada"}, make_held_message,
          is_idempotent=True),
    route("POST /v1/approvals/{approval}/reject", "message.reject", {"by": "Ada"}, make_held_message,
          is_idempotent=True),
    # the instance
    page(f"{OPERATOR}/platform", "platform.change", {"sandbox_per_day": "7{n}", "prices": ""}, is_idempotent=True),
    page(f"{OPERATOR}/carriers/{{carrier}}", "carrier.change", {"enabled": "yes", "priority": "7"}, make_carrier,
         is_idempotent=True),
    page(f"{OPERATOR}/carriers", "carrier.create", {"kind": "email-smtp", "id": "relay-{n}", "host": "127.0.0.1"}),
    page(f"{OPERATOR}/carriers/{{carrier}}", "carrier.order", {"move": "up"}, make_carrier, variant="move"),
    page(f"{OPERATOR}/carriers/{{carrier}}/edit", "carrier.edit", {"step_ms": "7"}, make_carrier, is_idempotent=True),
    page(f"{OPERATOR}/carriers/{{carrier}}/remove", "carrier.remove", {}, make_carrier, is_idempotent=True),
    page(f"{OPERATOR}/carriers/{{carrier}}/test", "carrier.test", {"address": "a@example.com"}, make_carrier,
         written_after=frozenset({"carrier_use"})),  # the carrier responded
    command("carriers change", "carrier.change", "{carrier}", "--enable", "--priority", "7", make=make_carrier,
            team=None,
            is_idempotent=True),
    page(f"{OPERATOR}/queues/pause", "delivery.pause", {"paused": "yes"}, resume_delivery, is_idempotent=True),
    page(f"{OPERATOR}/queues/pause", "delivery.resume", {}, pause_delivery, is_idempotent=True, variant="resume"),
    page(f"{OPERATOR}/queues/retry", "deadletter.retry", {"place": "{place}"}, make_dead_letter, is_idempotent=True),
    page(f"{OPERATOR}/queues/drop", "deadletter.drop", {"place": "{place}"}, make_dead_letter, is_idempotent=True),
    page(f"{OPERATOR}/queues/retry-all", "deadletter.retry", {"until": "{until}", "sure": "yes"}, make_dead_letter,
         is_idempotent=True),
    page(f"{OPERATOR}/queues/drop-all", "deadletter.drop", {"until": "{until}", "sure": "yes"}, make_dead_letter,
         is_idempotent=True),
    command("deadletter retry", "deadletter.retry", "{place}", make=make_dead_letter, team=None, is_idempotent=True),
    command("deadletter retry", "deadletter.retry", "--all", make=make_dead_letter, team=None, is_idempotent=True,
            variant="all"),
    command("deadletter drop", "deadletter.drop", "{place}", make=make_dead_letter, team=None, is_idempotent=True),
    command("deadletter drop", "deadletter.drop", "--all", make=make_dead_letter, team=None, is_idempotent=True,
            variant="all"),
    command("pause", "delivery.pause", make=resume_delivery, team=None, is_idempotent=True),
    command("resume", "delivery.resume", make=pause_delivery, team=None, is_idempotent=True),
    command("import run", "suppression.import", "resend", "{file}", "--team", "{team}", make=make_export_file,
            written_before=PORTIONS, written_after=IMPORTED),
    command("apply", "setup.apply", "{file}", make=make_setup_file, is_idempotent=True),
    command("secret rotate", "secret.rotate", team=None, has_two_entries=True),
    command("secret replace", "secret.replace", make=replace_secret, team=None, is_idempotent=True),
]  # fmt: skip

# Routes and commands that are no managed change.
EXCEPTIONS = {
    "POST /dashboard/sign-in": "a session is made, and an entry says so: tests/accounts/test_provider.py",
    "POST /dashboard/sign-in/passkey": "the same: tests/accounts/test_passkeys.py",
    "POST /dashboard/sign-out": "a session is ended by who has it",
    f"POST {TEAM}/inbox/{{id}}/unread": "a mark for the team's own eyes, like the one that opening it leaves",
    f"POST {TEAM}/templates/preview": "shows what stands in the editor",
    f"POST {TEAM}/layouts/preview": "shows what stands in the editor",
    "POST /v1/test-clock": "the page's change, for a sandbox team: tests/api/test_team_clock.py",
    "POST /v1/emails": "accepts a message",
    "POST /unsubscribe/{token}": "the recipient's own decision, told as an event: tests/api/test_unsubscribes.py",
    "POST /v1/sms": "accepts a message",
    "POST /v1/whatsapp": "accepts a message",
    **{
        change: "a message's own timeline tells it"
        for path in ("emails", "sms", "whatsapp")
        for change in (f"PATCH /v1/{path}/{{id}}", f"POST /v1/{path}/{{id}}/cancel")
    },
    **{f"POST /v1/{path}/batch": "accepts messages" for path in ("emails", "sms", "whatsapp")},
    f"POST {RESEND}/emails": "accepts a message",
    f"POST {RESEND}/emails/batch": "accepts messages",
    f"PATCH {RESEND}/emails/{{id}}": "a message's own timeline tells it",
    f"POST {RESEND}/emails/{{id}}/cancel": "a message's own timeline tells it",
    f"PATCH {RESEND}/domains/{{id}}": "takes only what is so already",
    f"PATCH {RESEND}/api-keys/{{id}}": "is refused",
    **{
        f"POST {POSTMARK}/{path}{end}": "accepts messages"
        for path in ("email", "email/batch", "email/withTemplate", "email/batchWithTemplates")
        for end in ("", "/")
    },
    f"POST {POSTMARK}/templates/validate": "shows a template, filled in",
    f"PUT {POSTMARK}/bounces/{{id}}/activate": "as DELETE /v1/suppressions: tests/compat/test_postmark_calls.py",
    "POST /compat/postal/api/v1/send/message": "accepts a message",
    "POST /compat/postal/api/v1/send/raw": "accepts a message",
    "POST /compat/postal/api/v1/messages/message": "shows a message",
    "POST /compat/postal/api/v1/messages/deliveries": "shows a message's tries",
    "POST /hooks/supabase/{team}": "accepts a message",
    f"POST {TWILIO}/v2/Services": "makes a SID out of a name and stores nothing",
    f"POST {VERIFICATIONS}s": "accepts a verification",
    f"POST {VERIFICATIONS}s/{{sid}}": "ends a verification, as /v1/verify/{id}/cancel does",
    f"POST {VERIFICATIONS}Check": "answers whether a code is right",
    f"POST {MESSAGES}.json": "accepts a message",
    "POST /v1/verify": "accepts a verification",
    "POST /v1/verify/{id}/resend": "sends a verification's code again",
    "POST /v1/verify/{id}/cancel": "ends a verification",
    "POST /v1/verify/{id}/check": "answers whether a code is right",
    "POST /v1/templates/{id}/render": "shows a template, filled in",
    "POST /carriers/{id}/callback": "takes a carrier's reports",
    "POST /bin/{team}/{token}": "keeps nothing",
    f"POST {TEAM}/webhooks/bin": "adds a webhook and tests it, each with the entry that its own page leaves",
    "backup": "changes its copy alone: test_a_backup_is_paused_by_the_command_line",
    "api": "sends a request to the API",
    "cell add": "changes schemas, and no record",
    "cell list": "reads",
    "cell move": "changes the node, and no record",
    "cell pattern": "computes",
    "cell status": "reads",
    "copy": "writes a new database, and pauses delivery in both: tests/proof/test_live_copy.py",
    "approval list": "reads",
    "audit check": "reads",
    "audit export": "reads",
    "audit head": "reads",
    "carriers show": "reads",
    "config": "reads",
    "deadletter list": "reads",
    "demo": "runs the service on a store of its own",
    "doctor": "reads",
    "import check": "reads",
    "secret show": "reads",
    "domain dns": "reads",
    "domain list": "reads",
    "domain zone": "reads",
    "key list": "reads",
    "key mint": "prints a token and stores nothing",
    "listen": "reads, by the API",
    "migrate": "changes the schema, and no record",
    "preflight": "reads",
    "reputation show": "reads",
    "send": "accepts a message, by the API",
    "serve": "runs the service",
    "template lint": "reads a file",
    "user list": "reads",
}
