"""The table: everything by which somebody changes something, how a test drives it, and the entry that it leaves."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from heliograph.dashboard.page_request import COOKIE
from heliograph.dashboard.views.passkeys import COOKIE as PASSKEY
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.setup.keys import parse_token
from heliograph.storage.people import Identity
from heliograph.templates.policy.layout_drafts import find_draft
from heliograph.templates.policy.template_approvals import mark_of
from tests.accounts.authenticator import Authenticator
from tests.accounts.house import PASSWORD
from tests.manage.edges import CLIENT, Entry, Make, Said, Values, World
from tests.service import TOKENS

TEAM = "/dashboard/teams/{team}"
OPERATOR = "/dashboard/operator"
RESEND, TWILIO, POSTMARK = "/compat/resend", "/compat/twilio", "/compat/postmark"
MESSAGES = f"{TWILIO}/2010-04-01/Accounts/{{account}}/Messages"
VERIFICATIONS = f"{TWILIO}/v2/Services/{{service}}/Verification"
URL = "https://1.1.1.1/hooks/{n}"  # nobody is told anything here
HOOK = "http://127.0.0.1:9/hooks/{n}"
DELIVERIES = frozenset({"delivery", "attempt", "endpoint"})
PORTIONS = frozenset({"import_portion"})
IMPORTED = frozenset({"suppression_import", "suppression", "event", "delivery"})
NEW_PASSWORD = "battery horse correct"


async def nothing(world: World) -> Values:
    return {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in braces is filled in from what `make` made, `n`, a number of its own, and `team`."""

    edge: Literal["page", "route", "command"]
    what: str  # a path of PAGES, a method and path of ROUTES, or a command
    action: str
    given: Any = {}  # form, body or arguments
    make: Make = nothing
    who: str = "owner"  # of a page
    team: str | None = "{team}"  # of the entry
    file: str = ""  # to be uploaded
    again: bool = False  # the same once more changes nothing
    also: frozenset[str] = frozenset()  # tables that are not watched otherwise
    first: frozenset[str] = frozenset()  # tables that are written in portions before it, and mean nothing without it
    then: frozenset[str] = frozenset()  # tables that follow in portions after it
    in_parts: bool = False  # in as many transactions as it needs: an entry with the first, another one with the last
    variant: str = ""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.edge, self.what.replace("/dashboard", ""), self.variant)))

    async def drive(self, world: World, values: Values) -> Said:
        if "secret" in values:
            values = values | {"code": world.code(values["secret"])}
        given = _filled(self.given, values)
        if self.edge == "command":
            return world.command(*self.what.split(), *given)
        if self.edge == "page":
            return await world.post(_filled(self.what, values), given, values.get("who", self.who), self.file)
        method, path = self.what.split()
        return await world.call(method, _filled(path, values), given or None)

    def entry(self, world: World, values: Values) -> Entry:
        if self.edge == "command":
            actor = "command line"
        elif self.edge == "route":
            actor = f"key {parse_token(TOKENS['ACME'])}"
        else:
            actor = values.get("actor") or world.people[values.get("who", self.who)][0]
        address = "" if self.edge == "command" else CLIENT
        return Entry(actor, self.action, self.team and _filled(self.team, values), address)


def _filled(given: Any, values: Values) -> Any:
    if isinstance(given, str):
        return given.format_map(values)
    if isinstance(given, Mapping):
        return {name: _filled(value, values) for name, value in given.items()}
    return [_filled(one, values) for one in given] if isinstance(given, Sequence) else given


def page(path: str, action: str, form: Mapping[str, str] = {}, make: Make = nothing, **options: Any) -> Change:
    usual = {"who": "operator"} if path.startswith(OPERATOR) else {}
    team = {} if "{team}" in path else {"team": None}
    return Change(edge="page", what=path, action=action, given=form, make=make, **usual | team | options)


def route(what: str, action: str, body: Any = (), make: Make = nothing, **options: Any) -> Change:
    return Change(edge="route", what=what, action=action, given=body, make=make, **options)


def command(what: str, action: str, *arguments: str, make: Make = nothing, **options: Any) -> Change:
    return Change(edge="command", what=what, action=action, given=arguments, make=make, **options)


# -- what they are about: made through an edge ------------------------------------------------------------------------


async def a_key(world: World) -> Values:
    made = await world.done("key", "create", "--team", "team_acme", "--name", f"made {world.number()}")
    return {"key": parse_token(made.strip()) or ""}


async def a_webhook(world: World) -> Values:
    given = {"url": URL.format(n=world.number()), "events": ["*"]}
    return {"webhook": (await world.call("POST", "/v1/webhooks", given)).json["id"]}


async def a_chat(world: World) -> Values:
    assert (await world.post("/dashboard/teams/team_acme/notices", {"url": URL.format(n=world.number())}, "owner")).ok
    return {}


async def the_operators_chat(world: World) -> Values:
    assert (await world.post(f"{OPERATOR}/notices", {"url": URL.format(n=world.number())}, "operator")).ok
    return {}


async def a_disabled_webhook(world: World) -> Values:
    made = await a_webhook(world)
    assert (await world.call("PATCH", f"/v1/webhooks/{made['webhook']}", {"enabled": False})).ok
    return made


async def a_told_webhook(world: World) -> Values:
    made = await a_webhook(world)
    told = await world.call("POST", f"/v1/webhooks/{made['webhook']}/test")
    return made | {"event": told.json["id"]}


async def a_commands_webhook(world: World) -> Values:
    """Its secret is sealed as commands seal it."""
    url = HOOK.format(n=world.number())
    made = json.loads(await world.done("webhook", "add", url, "--team", "team_acme", "--json"))
    return {"webhook": made["id"], "event": (await world.done("webhook", "test", made["id"])).strip()}


async def a_suppression(world: World) -> Values:
    email = f"gone{world.number()}@example.com"
    assert (await world.call("POST", "/v1/suppressions", {"email": email})).ok
    return {"email": email}


async def a_postmark_webhook(world: World) -> Values:
    given = {"url": URL.format(n=world.number()), "events": ["*"], "format": "postmark"}
    made = (await world.call("POST", "/v1/webhooks", given)).json["id"]
    assert (await world.call("POST", f"/v1/webhooks/{made}/test")).ok
    return {"webhook": made}


async def a_stream(world: World) -> Values:
    return await a_suppression(world) | {"stream": "outbound"}


async def an_opt_out(world: World) -> Values:
    phone = f"+49151{world.number():0>8}"
    assert (await world.call("POST", "/v1/opt-outs", {"phone": phone, "channel": "sms"})).ok
    return {"phone": phone}


async def an_export(world: World) -> Values:
    path = world.service.data / f"{world.number()}.csv"
    path.write_text(f"email,origin\nexported{world.number()}@example.com,bounce\n")
    return {"file": str(path)}


async def an_ended_sms(world: World) -> Values:
    given = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "1"}}
    at = timestamp(world.house.store.clock.now() + HOUR_MS)
    sent = await world.call("POST", "/v1/sms", given | {"scheduled_at": at})
    assert (await world.call("POST", f"/v1/sms/{sent.json['id']}/cancel")).ok
    return {"sid": sent.json["id"], "account": "AC1"}


async def a_list(world: World) -> Values:
    path = world.service.data / f"{world.number()}.csv"
    path.write_text("listed@example.com\n")
    return {"file": str(path)}


async def a_domain(world: World) -> Values:
    name = f"d{world.number()}.test"
    return {"domain": name, "id": (await world.call("POST", "/v1/domains", {"name": name})).json["id"]}


async def a_checked_domain(world: World) -> Values:
    made = await a_domain(world)
    assert (await world.call("POST", f"/v1/domains/{made['id']}/check")).ok
    return made


async def a_commands_domain(world: World) -> Values:
    name = f"d{world.number()}.test"
    await world.done("domain", "add", name, "--team", "team_acme")
    return {"domain": name}


async def the_platforms_domain(world: World) -> Values:
    """The service makes it when it is first asked for."""
    await world.get(f"{OPERATOR}/platform/sender", "operator")
    return {}


async def a_display_name(world: World) -> Values:
    n = world.number()
    await world.apply(
        '[[teams]]\nid = "team_acme"\n[[teams.domains]]\nid = "dom_acme"\nname = "acme.test"\n'
        f'[[teams.domains.display_names]]\nid = "dn_{n}"\nname = "Acme {n}"\n'
    )
    return {"kind": "display_name", "id": f"dn_{n}", "text": f"Send as Acme {n} from acme.test"}


async def a_refused_name(world: World) -> Values:
    made = await a_display_name(world)
    path, form = TEAM.format(team="team_acme"), {"kind": made["kind"], "id": made["id"], "reason": "no"}
    assert (await world.post(f"{path}/senders/decide", form, "operator")).ok
    return made


async def a_code(world: World) -> Values:
    """Sent to somebody who is to be a recipient of the sandbox."""
    address = f"me{world.number()}@example.com"
    path = TEAM.format(team="team_sandbox")
    asked = await world.post(f"{path}/senders/recipients", {"address": address}, "owner")
    (code,) = re.findall(r"[A-Z2-7]{4}-[A-Z2-7]{4}", await world.get(asked.place, "owner"))
    return {"team": "team_sandbox", "address": address, "typed": code}


async def the_sandbox(world: World) -> Values:
    return {"team": "team_sandbox"}


async def a_layout(world: World) -> Values:
    id_ = f"lay_{world.number()}"
    await world.apply(f'[[teams]]\nid = "team_acme"\n[[teams.layouts]]\nid = "{id_}"\ntext = "{{{{content}}}}"\n')
    return {"layout": id_}


async def a_layout_draft(world: World) -> Values:
    made = await a_layout(world)
    await world.call("PATCH", f"/v1/layouts/{made['layout']}", {"text": "- {{content}}"})
    return made


async def a_submitted_layout(world: World) -> Values:
    made = await a_layout_draft(world)
    await world.call("POST", f"/v1/layouts/{made['layout']}/submit", None)
    return made


async def a_seen_layout(world: World) -> Values:
    made = await a_submitted_layout(world)
    draft = find_draft(world.house.store.setup.current, made["layout"])
    assert draft
    return made | {"mark": mark_of(draft)}


async def a_template(world: World) -> Values:
    """With two versions."""
    id_ = f"tpl_{world.number()}"
    for text in ("First", "Second"):
        await world.apply(_template(id_, f'text = "{text}"'))
    return {"template": id_}


async def an_archived_template(world: World) -> Values:
    made = await a_template(world)
    path = f"{TEAM}/templates/{{template}}/archive".format(team="team_acme", **made)
    assert (await world.post(path, {}, "owner")).ok
    return made


async def a_draft(world: World) -> Values:
    id_ = f"tpl_{world.number()}"
    await world.apply(_template(id_, 'text = "Draft"\nstatus = "draft"'))
    shown = await world.get(f"{TEAM}/templates/{id_}".format(team="team_acme"), "operator")
    return {"template": id_, "mark": re.findall(r'name="mark" value="(\w+)"', shown)[0]}


async def an_edited_template(world: World) -> Values:
    made = await a_template(world)
    shown = await world.get(f"{TEAM}/templates/{made['template']}/edit".format(team="team_acme"), "owner")
    return made | {"mark": re.findall(r'name="mark" value="(\w+)"', shown)[0]}


async def an_unfinished_draft(world: World) -> Values:
    made = await an_edited_template(world)
    place = f"{TEAM}/templates/{made['template']}".format(team="team_acme")
    form = {"name": made["template"], "subject": "Hello", "text": "Third", "mark": made["mark"], "do": "draft"}
    await world.post(f"{place}/edit", form, "owner")
    shown = await world.get(place, "owner")
    return made | {"mark": re.findall(r'name="mark" value="(\w+)"', shown)[0]}


def _template(id_: str, more: str) -> str:
    return (
        f'[[teams]]\nid = "team_acme"\n[[teams.templates]]\nid = "{id_}"\nchannel = "email"\n'
        f'name = "{id_}"\nsubject = "Hello"\n{more}\n'
    )


async def a_team(world: World, mode: str = "sandbox") -> Values:
    """With all that it needs to go live."""
    n = world.number()
    await world.apply(
        f'[[teams]]\nid = "team_{n}"\nname = "Team {n}"\nmode = "{mode}"\ncredit = "1.00"\n'
        f'[[teams.domains]]\nname = "t{n}.test"\nverified = true\napproved = true\n'
    )
    return {"team": f"team_{n}"}


async def a_live_team(world: World) -> Values:
    return await a_team(world, "live")


async def a_clocked_team(world: World) -> Values:
    made = await a_team(world)
    await world.apply(f'[[teams]]\nid = "{made["team"]}"\ntest_clock = true\n')
    return made


async def a_suspended_team(world: World) -> Values:
    made = await a_team(world)
    await world.done("team", "suspend", made["team"])
    return made


async def a_paused_team(world: World) -> Values:
    """By its reputation."""
    made, now = await a_team(world), world.house.clock.now()
    ref = world.house.store.setup.current.teams[made["team"]].record.ref
    await world.sql(f"INSERT INTO reputation VALUES ({ref}, {now - now % HOUR_MS}, 1000, 500, 0)")
    assert await world.house.store.reputation.judge()
    return made


async def a_person(world: World) -> Values:
    name = await world.person()
    return {"person": world.people[name][0], "email": f"{name}@example.com", "self": name}


async def themselves(world: World) -> Values:
    """Who changes something about their own account."""
    return {"who": await world.person()}


async def themselves_twice(world: World) -> Values:
    who = await world.person()
    assert (await world.house.browser().sign_in(f"{who}@example.com")).status == 303
    return {"who": who}


async def themselves_with_a_secret(world: World) -> Values:
    """About to turn the code at sign-in on."""
    who = await world.person()
    shown = await world.get("/dashboard/account/totp", who)
    (secret,) = re.findall(r"<code>([A-Z2-7 ]+)</code>", shown)
    (sealed,) = re.findall(r'name="sealed" value="([^"]+)"', shown)
    return {"who": who, "secret": secret.replace(" ", ""), "sealed": sealed}


async def themselves_with_a_code(world: World) -> Values:
    made = await themselves_with_a_secret(world)
    form = {"sealed": made["sealed"], "code": world.code(made["secret"]), "check": PASSWORD}
    assert (await world.post("/dashboard/account/totp", form, made["who"])).ok
    return made


async def themselves_with_a_device(world: World) -> Values:
    """That has answered, and is about to be added."""
    who, device, browser = await world.person(), Authenticator(), world.house.browser()
    browser.cookies = {COOKIE: world.people[who][1]}
    answer = device.make((await browser.get("/dashboard/account/passkeys/new")).body)
    world.questions[who] = browser.cookies[PASSKEY]
    return {"who": who, "credential": answer, "passkey": json.loads(answer)["id"]}


async def themselves_with_a_passkey(world: World) -> Values:
    made = await themselves_with_a_device(world)
    form = {"passkey": "Phone", "check": PASSWORD, "credential": made["credential"]}
    assert (await world.post("/dashboard/account/passkeys", form, made["who"])).ok
    return made


async def a_person_of_a_provider(world: World) -> Values:
    made = await a_person(world)
    who = Identity(issuer="https://id.example.com", subject=made["person"], email=made["email"], name="")
    entry = COMMAND_LINE.did(world.house.clock.now(), "", made["email"])
    assert not isinstance(await world.house.people.identify(who, entry, may_add=False), str)
    return made


async def a_person_with_a_code(world: World) -> Values:
    who = (await themselves_with_a_code(world))["who"]
    return {"person": world.people[who][0], "email": f"{who}@example.com"}


async def themselves_invited(world: World) -> Values:
    who = await world.person()
    await world.done("user", "add", f"{who}@example.com", "--team", "team_acme", "--role", "viewer")
    return {"who": who}


async def a_member(world: World) -> Values:
    name = await world.person(team_acme="viewer")
    return {"person": world.people[name][0], "email": f"{name}@example.com"}


async def a_reset_link(world: World) -> Values:
    made = await a_person(world)
    link = await world.done("user", "link", made["email"])
    return {"token": link.strip().rpartition("/")[2], "actor": made["person"], "who": ""}


async def an_invitation(world: World) -> Values:
    email = f"new{world.number()}@example.com"
    link = await world.done("user", "add", email, "--team", "team_acme")
    return {"token": link.strip().rpartition("/")[2], "actor": await world.house.id_of(email), "who": ""}


async def a_failed_message(world: World) -> Values:
    mail = {"from": "hello@acme.test", "to": f"a{world.number()}@example.com", "subject": "Hello", "text": "Hello"}
    id_ = (await world.call("POST", "/v1/emails", mail)).json["id"]
    ((key,),) = await world.sql(f"SELECT key FROM message WHERE id = '{id_}'")
    await world.sql(f"DELETE FROM outbox WHERE message = {key}")
    await world.sql(f"UPDATE message SET status = 'failed', ended_at = created_at WHERE key = {key}")
    await world.sql(f"UPDATE recipient SET status = 'failed' WHERE message = {key}")
    return {"message": id_, "place": f"{key}-0"}


async def a_dead_letter(world: World) -> Values:
    made = await a_failed_message(world)
    key, _ = made["place"].split("-")
    dead = """updated_at = 1, detail = '{"reason":"quarantined"}'"""  # long ago, by the clocks of all edges
    await world.sql(f"UPDATE recipient SET {dead} WHERE message = {key}")
    return made | {"until": str(world.house.clock.now() + HOUR_MS)}


async def a_carrier(world: World) -> Values:
    id_ = f"sim-{world.number()}"
    one = '[[carriers]]\nid = "{}"\nchannel = "email"\nkind = "simulator"\nenabled = false\npriority = {}\n'
    await world.apply(one.format(f"first-{id_}", 1) + one.format(id_, 2))
    return {"carrier": id_}


async def a_file(world: World) -> Values:
    n = world.number()
    path = world.service.data / f"{n}.toml"
    path.write_text(f'[[teams]]\nid = "team_acme"\n[[teams.templates]]\nid = "tpl_{n}"\nname = "{n}"\n'
                    'channel = "email"\nsubject = "Hello"\ntext = "Hello"\n')  # fmt: skip
    return {"file": str(path)}


async def another_secret(world: World) -> Values:
    """The database goes by one that is in another folder."""
    await world.done("secret", "replace", "--data", str(world.service.data / "other"))
    return {}


async def delivery_runs(world: World) -> Values:
    await world.done("resume")
    return {}


async def delivery_is_paused(world: World) -> Values:
    await world.done("pause")
    return {}


# -- the table --------------------------------------------------------------------------------------------------------

CHANGES = [
    # a person's own account
    page("/dashboard/account/name", "account.name", {"name": "Ada {n}"}, themselves, again=True),
    page("/dashboard/account/notices", "account.notices", {"/dead_letters": "yes"}, who="operator", again=True),
    page(f"{TEAM}/notices", "chat.set", {"url": URL}),
    page(f"{TEAM}/notices/test", "chat.test", {}, a_chat),
    page(f"{TEAM}/notices/remove", "chat.remove", {}, a_chat, again=True),
    page(f"{OPERATOR}/notices", "chat.set", {"url": URL}),
    page(f"{OPERATOR}/notices/test", "chat.test", {}, the_operators_chat),
    page(f"{OPERATOR}/notices/remove", "chat.remove", {}, the_operators_chat, again=True),
    page("/dashboard/account/password", "account.password", {"old": PASSWORD, "new": NEW_PASSWORD}, themselves,
         again=True),
    page("/dashboard/account/sessions", "account.sessions", {}, themselves_twice, also=frozenset({"session"}),
         again=True),
    page("/dashboard/account/totp", "account.totp", {"sealed": "{sealed}", "code": "{code}", "check": PASSWORD},
         themselves_with_a_secret, again=True),
    page("/dashboard/account/passkeys", "account.passkey",
         {"passkey": "Phone", "check": PASSWORD, "credential": "{credential}"}, themselves_with_a_device, again=True),
    page("/dashboard/account/passkeys/remove", "account.passkey", {"id": "{passkey}"}, themselves_with_a_passkey,
         again=True),
    page("/dashboard/account/totp/off", "account.totp", {"code": "{code}"}, themselves_with_a_code, again=True),
    page("/dashboard/invitations", "member.accept", {"team": "team_acme", "answer": "accept"}, themselves_invited,
         team="team_acme", again=True),
    page("/dashboard/invitations", "member.decline", {"team": "team_acme", "answer": "decline"}, themselves_invited,
         team="team_acme", again=True, variant="decline"),
    page("/dashboard/link/{token}", "account.password", {"password": NEW_PASSWORD}, a_reset_link, again=True),
    page("/dashboard/link/{token}", "member.accept", {"password": NEW_PASSWORD}, an_invitation, team="team_acme",
         again=True, variant="invitation"),
    # people of a team, and of the instance
    page(f"{TEAM}/team", "member.invite", {"email": "m{n}@example.com", "role": "viewer"}, again=True),
    page(f"{TEAM}/team/{{person}}/role", "member.role", {"role": "developer"}, a_member, again=True),
    page(f"{TEAM}/team/{{person}}/link", "link.reset", {}, a_member),
    page(f"{TEAM}/team/{{person}}/remove", "member.remove", {}, a_member, again=True),
    page(f"{OPERATOR}/people", "person.add", {"email": "p{n}@example.org"}, again=True),
    page(f"{OPERATOR}/people/{{person}}/operator", "person.operator", {"operator": "yes"}, a_person),
    page(f"{OPERATOR}/people/{{person}}/link", "person.link", {}, a_person),
    page(f"{OPERATOR}/people/{{person}}/role", "member.invite", {"team": "team_acme", "role": "viewer"}, a_person,
         team="team_acme"),
    page(f"{OPERATOR}/people/{{person}}/role", "member.role", {"team": "team_acme", "role": "developer"}, a_member,
         team="team_acme", again=True, variant="of a member"),
    page(f"{OPERATOR}/people/{{person}}/totp", "person.totp", {}, a_person_with_a_code, again=True),
    page(f"{OPERATOR}/people/{{person}}/provider", "person.provider", {}, a_person_of_a_provider, again=True),
    page(f"{OPERATOR}/people/{{person}}/sessions", "person.sessions", {}, a_person, also=frozenset({"session"}),
         again=True),
    page(f"{OPERATOR}/people/{{person}}/remove", "person.remove", {}, a_person, again=True),
    command("user add", "person.add", "new{n}@example.com", team=None),
    command("user add", "member.invite", "new{n}@example.com", "--team", "{team}", variant="to a team"),
    command("user link", "person.link", "{email}", make=a_person, team=None),
    command("user link", "person.link", "{email}", "--without-code", make=a_person_with_a_code, team=None,
            variant="without a code"),
    command("user role", "member.role", "{email}", "{team}", "developer", make=a_member, again=True),
    command("user role", "member.remove", "{email}", "{team}", "none", make=a_member, again=True, variant="none"),
    command("user sign-out", "person.sessions", "{email}", make=a_person, team=None, again=True,
            also=frozenset({"session"})),
    command("user remove", "person.remove", "{email}", make=a_person, team=None, again=True),
    # keys
    page(f"{TEAM}/keys", "key.create", {"name": "key {n}", "send": "yes"}, again=True),
    page(f"{TEAM}/keys", "key.create", {"name": "hook {n}", "send": "yes", "kind": "hook"}, again=True),
    page(f"{TEAM}/keys/{{key}}/rotate", "key.rotate", {}, a_key),
    page(f"{TEAM}/keys/{{key}}/revoke", "key.revoke", {}, a_key, again=True),
    route("POST /v1/keys", "key.create", {"name": "key {n}"}, again=True),
    route("POST /v1/keys/{key}/rotate", "key.rotate", {}, a_key),
    route("DELETE /v1/keys/{key}", "key.revoke", {}, a_key, again=True),
    command("key create", "key.create", "--team", "{team}", "--name", "key {n}", again=True),
    command("key create", "key.create", "--team", "{team}", "--name", "hook {n}", "--hook", again=True),
    command("key rotate", "key.rotate", "{key}", make=a_key),
    command("key revoke", "key.revoke", "{key}", make=a_key, again=True),
    # webhooks
    page(f"{TEAM}/webhooks", "webhook.create", {"url": URL, "all": "yes"}),
    page(f"{TEAM}/webhooks/{{webhook}}", "webhook.change", {"url": URL, "sms.*": "yes"}, a_webhook, again=True),
    page(f"{TEAM}/webhooks/{{webhook}}/switch", "webhook.disable", {}, a_webhook, again=True),
    page(f"{TEAM}/webhooks/{{webhook}}/switch", "webhook.enable", {"enabled": "yes"}, a_disabled_webhook, again=True,
         variant="on"),
    page(f"{TEAM}/webhooks/{{webhook}}/rotate", "webhook.rotate", {}, a_webhook),
    page(f"{TEAM}/webhooks/{{webhook}}/remove", "webhook.remove", {}, a_told_webhook, again=True, then=DELIVERIES),
    page(f"{TEAM}/webhooks/{{webhook}}/test", "webhook.test", {}, a_webhook),
    page(f"{TEAM}/webhooks/{{webhook}}/replay", "webhook.replay", {"event": "{event}"}, a_told_webhook),
    route("POST /v1/webhooks", "webhook.create", {"url": URL, "events": ["*"]}),
    route("PATCH /v1/webhooks/{webhook}", "webhook.change", {"url": URL}, a_webhook, again=True),
    route("DELETE /v1/webhooks/{webhook}", "webhook.remove", {}, a_told_webhook, again=True, then=DELIVERIES),
    route("POST /v1/webhooks/{webhook}/rotate", "webhook.rotate", {}, a_webhook),
    route("POST /v1/webhooks/{webhook}/test", "webhook.test", {}, a_webhook),
    route("POST /v1/webhooks/{webhook}/replay", "webhook.replay", {"event_id": "{event}"}, a_told_webhook),
    command("webhook add", "webhook.create", HOOK, "--team", "{team}"),
    command("webhook change", "webhook.change", "{webhook}", "--url", HOOK, make=a_commands_webhook, again=True),
    command("webhook remove", "webhook.remove", "{webhook}", make=a_commands_webhook, again=True, then=DELIVERIES),
    command("webhook rotate", "webhook.rotate", "{webhook}", make=a_commands_webhook),
    command("webhook test", "webhook.test", "{webhook}", make=a_commands_webhook),
    command("webhook replay", "webhook.replay", "{webhook}", "--event-id", "{event}", make=a_commands_webhook),
    # messages of a person, and the inbox
    page(f"{TEAM}/test", "message.test", {}),
    page(f"{TEAM}/messages/{{message}}/resend", "message.resend", {}, a_failed_message),
    page(f"{TEAM}/templates/{{template}}/send", "template.test",
         {"to": "delivered@simulator.test", "from": "a@acme.test"}, a_template),
    page(f"{TEAM}/inbox", "inbox.clear", {}),
    page(f"{TEAM}/inbox/{{message}}/delete", "inbox.delete", {}, a_failed_message, again=True),
    # opt-outs
    page(f"{TEAM}/opt-outs", "opt_out.add", {"phone": "+49160{n:0>8}", "channel": "sms"}, again=True),
    page(f"{TEAM}/opt-outs/remove", "opt_out.remove", {"phone": "{phone}", "channel": "sms"}, an_opt_out, again=True),
    route("POST /v1/opt-outs", "opt_out.add", {"phone": "+49161{n:0>8}", "channel": "sms"}, again=True),
    route("DELETE /v1/opt-outs/{phone}", "opt_out.remove", {}, an_opt_out, again=True),
    # suppressions and erasing
    page(f"{TEAM}/suppressions", "suppression.add", {"email": "s{n}@example.com"}, again=True),
    page(f"{TEAM}/suppressions/remove", "suppression.remove", {"email": "{email}"}, a_suppression, again=True),
    page(f"{TEAM}/suppressions/import", "suppression.import", {}, a_team, who="operator", file="a@example.com\n",
         first=PORTIONS),
    page(f"{TEAM}/suppressions/erase", "address.erase", {"address": "{email}", "sure": "yes"}, a_suppression,
         in_parts=True),
    route("POST /v1/suppressions", "suppression.add", {"email": "s{n}@example.com"}, again=True),
    route("DELETE /v1/suppressions/{email}", "suppression.remove", {}, a_suppression, again=True),
    command("suppression add", "suppression.add", "s{n}@example.com", "--team", "{team}", again=True),
    command("suppression remove", "suppression.remove", "{email}", "--team", "{team}", make=a_suppression, again=True),
    command("suppression import", "suppression.import", "{file}", "--team", "{team}", make=a_list, first=PORTIONS,
            then=IMPORTED),
    command("erase", "address.erase", "{email}", "--team", "{team}", "--yes", make=a_suppression, in_parts=True),
    command("export", "address.export", "{email}", "--team", "{team}", make=a_suppression),
    # domains, names, sender ids, recipients
    page(f"{TEAM}/senders/domains", "domain.add", {"domain": "a{n}.test"}, again=True),
    page(f"{TEAM}/senders/domains/{{id}}/check", "domain.verified", {}, a_domain, again=True),
    page(f"{TEAM}/senders/domains/{{id}}/rotate", "domain.rotate", {}, a_domain, again=True),
    page(f"{TEAM}/senders/domains/{{id}}/brand", "domain.brand", {"brand": "Brand {n}"}, a_domain, again=True),
    page(f"{TEAM}/senders/domains/{{id}}/remove", "domain.remove", {}, a_domain, again=True),
    page(f"{OPERATOR}/platform/mail-host", "platform.change", {"mail_host": "mail{n}.test"}, again=True),
    page(f"{OPERATOR}/platform/sender/check", "domain.verified", {}, the_platforms_domain),
    page(f"{OPERATOR}/platform/sender/rotate", "domain.rotate", {}, the_platforms_domain, again=True),
    page(f"{TEAM}/senders/names", "display_name.submit", {"name": "Name {n}", "of": "dom_acme"}, again=True),
    page(f"{TEAM}/senders/sender-ids", "sender_id.submit", {"country": "FR", "value": "ACME{n}"}, again=True),
    page(f"{TEAM}/senders/remove", "display_name.remove", {"kind": "display_name", "id": "{id}"}, a_display_name,
         again=True),
    page(f"{TEAM}/senders/ask", "display_name.submit", {"kind": "display_name", "id": "{id}"}, a_refused_name,
         again=True),
    page(f"{TEAM}/senders/decide", "display_name.approve",
         {"kind": "display_name", "id": "{id}", "approve": "yes"}, a_display_name, who="operator", again=True),
    page(f"{OPERATOR}/approvals/{{team}}", "display_name.approve",
         {"kind": "display_name", "id": "{id}", "text": "{text}", "approve": "yes"}, a_display_name, again=True),
    page(f"{OPERATOR}/approvals/{{team}}/reopen", "display_name.reopen",
         {"kind": "display_name", "said": "{text}"}, a_refused_name, again=True),
    page(f"{OPERATOR}/approvals/{{team}}/templates/{{template}}", "template.approve",
         {"mark": "{mark}", "approve": "yes"}, a_draft, again=True),
    page(f"{TEAM}/senders/recipients", "recipient.ask", {"address": "r{n}@example.com"}, the_sandbox),
    page(f"{TEAM}/senders/recipients/confirm", "recipient.add", {"address": "{address}", "code": "{typed}"}, a_code,
         again=True),
    route("POST /v1/domains", "domain.add", {"name": "a{n}.test"}, again=True),
    route("POST /v1/domains/{id}/check", "domain.verified", {}, a_domain, again=True),
    route("POST /v1/domains/{id}/rotate", "domain.rotate", {}, a_domain, again=True),
    command("domain add", "domain.add", "a{n}.test", "--team", "{team}", again=True),
    command("domain check", "domain.verified", "{domain}", make=a_commands_domain, again=True),
    command("domain rotate", "domain.rotate", "{domain}", make=a_commands_domain, again=True),
    command("domain brand", "domain.brand", "{domain}", "Brand {n}", make=a_commands_domain, again=True),
    command("domain remove", "domain.remove", "{domain}", make=a_commands_domain, again=True),
    command("sender approve", "display_name.approve", "{id}", make=a_display_name, again=True),
    command("sender refuse", "display_name.refuse", "{id}", "--reason", "no", make=a_display_name, again=True),
    # as Resend's clients ask for it
    route(f"POST {RESEND}/domains", "domain.add", {"name": "r{n}.test"}),
    route(f"POST {RESEND}/domains/{{id}}/verify", "domain.verified", {}, a_domain, again=True),
    route(f"DELETE {RESEND}/domains/{{id}}", "domain.remove", {}, a_domain, again=True),
    route(f"POST {RESEND}/webhooks", "webhook.create", {"endpoint": URL, "events": ["email.sent"]}),
    route(f"PATCH {RESEND}/webhooks/{{webhook}}", "webhook.change", {"endpoint": URL}, a_webhook, again=True),
    route(f"DELETE {RESEND}/webhooks/{{webhook}}", "webhook.remove", {}, a_told_webhook, again=True, then=DELIVERIES),
    route(f"POST {RESEND}/webhooks/{{webhook}}/signing-secret/rotate", "webhook.rotate", {}, a_webhook),
    route(f"POST {RESEND}/webhooks/{{webhook}}/events/{{event}}/replay", "webhook.replay", {}, a_told_webhook),
    route(f"POST {RESEND}/suppressions", "suppression.add", {"email": "r{n}@example.com"}, again=True),
    route(f"DELETE {RESEND}/suppressions/{{email}}", "suppression.remove", {}, a_suppression, again=True),
    route(f"POST {RESEND}/suppressions/batch/add", "suppression.add", {"emails": ["r{n}@example.com"]}, again=True),
    route(f"POST {RESEND}/suppressions/batch/remove", "suppression.remove", {"ids": ["{email}"]}, a_suppression,
          again=True),
    route(f"POST {RESEND}/api-keys", "key.create", {"name": "key {n}"}, again=True),
    route(f"DELETE {RESEND}/api-keys/{{key}}", "key.revoke", {}, a_key, again=True),
    route(f"POST {RESEND}/templates", "template.save", {"name": "R{n}", "subject": "Hello", "text": "Hello"}),
    route(f"PATCH {RESEND}/templates/{{template}}", "template.save", {"text": "Third"}, a_template),
    route(f"POST {RESEND}/templates/{{template}}/publish", "template.publish", {}, an_unfinished_draft, again=True),
    route(f"POST {RESEND}/templates/{{template}}/duplicate", "template.save", {}, a_template),
    route(f"DELETE {RESEND}/templates/{{template}}", "template.archive", {}, a_template, again=True),
    # as Postmark's clients do
    route(f"POST {POSTMARK}/message-streams/{{stream}}/suppressions", "suppression.add",
          {"Suppressions": [{"EmailAddress": "p{n}@example.com"}]}, a_stream, again=True),
    route(f"POST {POSTMARK}/message-streams/{{stream}}/suppressions/delete", "suppression.remove",
          {"Suppressions": [{"EmailAddress": "{email}"}]}, a_stream, again=True),
    route(f"POST {POSTMARK}/templates", "template.publish", {"Name": "P{n}", "Subject": "Hi", "TextBody": "Hi"}),
    route(f"POST {POSTMARK}/templates/", "template.publish", {"Name": "P{n}", "Subject": "Hi", "TextBody": "Hi"}),
    route(f"PUT {POSTMARK}/templates/{{template}}", "template.publish", {"TextBody": "Third"}, a_template),
    route(f"DELETE {POSTMARK}/templates/{{template}}", "template.archive", {}, a_template),
    route(f"POST {POSTMARK}/webhooks", "webhook.create", {"Url": URL, "Triggers": {"Bounce": {"Enabled": True}}}),
    route(f"PUT {POSTMARK}/webhooks/{{webhook}}", "webhook.change", {"Url": URL}, a_postmark_webhook, again=True),
    route(f"DELETE {POSTMARK}/webhooks/{{webhook}}", "webhook.remove", {}, a_postmark_webhook, then=DELIVERIES),
    # as Twilio's clients do
    route(f"POST {MESSAGES}/{{sid}}", "message.redact", {"Body": ""}, an_ended_sms),
    route(f"DELETE {MESSAGES}/{{sid}}", "message.delete", {}, an_ended_sms, again=True),
    # layouts
    route("POST /v1/layouts", "layout.save", {"name": "L{n}", "text": "{{{{content}}}}"}),
    route("PATCH /v1/layouts/{layout}", "layout.save", {"text": "-- {{{{content}}}}"}, a_layout, again=True),
    route("POST /v1/layouts/{layout}/submit", "layout.submit", {}, a_layout_draft, again=True),
    route("POST /v1/layouts/{layout}/archive", "layout.archive", {}, a_layout, again=True),
    page(f"{TEAM}/layouts/new", "layout.publish", {"name": "L{n}", "text": "{{{{content}}}}"}),
    page(f"{TEAM}/layouts/{{layout}}/edit", "layout.publish",
         {"name": "{layout}", "text": "+ {{{{content}}}}", "mark": "{mark}"}, a_seen_layout),
    page(f"{TEAM}/layouts/{{layout}}/edit", "layout.save",
         {"name": "{layout}", "text": "+ {{{{content}}}}", "mark": "{mark}", "do": "draft"},
         a_seen_layout, variant="as a draft"),
    page(f"{TEAM}/layouts/{{layout}}/publish", "layout.publish", {"mark": "{mark}"}, a_seen_layout),
    page(f"{TEAM}/layouts/{{layout}}/archive", "layout.archive", {}, a_layout, again=True),
    page(f"{OPERATOR}/approvals/{{team}}/layouts/{{layout}}", "layout.approve",
         {"mark": "{mark}", "approve": "yes"}, a_seen_layout),
    page(f"{OPERATOR}/approvals/{{team}}/layouts/{{layout}}", "layout.refuse",
         {"mark": "{mark}", "reason": "No."}, a_seen_layout, variant="refused"),
    command("layout approve", "layout.approve", "{layout}", make=a_submitted_layout, again=True),
    command("layout archive", "layout.archive", "{layout}", make=a_layout, again=True),
    # templates
    route("POST /v1/templates", "template.save", {"channel": "email", "name": "V{n}", "subject": "S", "text": "Hello"}),
    route("PATCH /v1/templates/{template}", "template.save", {"text": "Third"}, a_template, again=True),
    route("POST /v1/templates/{template}/submit", "template.submit", {}, an_unfinished_draft, again=True),
    route("POST /v1/templates/{template}/archive", "template.archive", {}, a_template, again=True),
    page(f"{TEAM}/templates/new", "template.publish", {"name": "T{n}", "subject": "Hello", "text": "Hello"}),
    page(f"{TEAM}/templates/{{template}}/edit", "template.publish",
         {"name": "{template}", "subject": "Hello", "text": "Third", "mark": "{mark}"}, an_edited_template),
    page(f"{TEAM}/templates/{{template}}/edit", "template.save",
         {"name": "{template}", "subject": "Hello", "text": "Third", "mark": "{mark}", "do": "draft"},
         an_edited_template, variant="as a draft"),
    page(f"{TEAM}/templates/{{template}}/publish", "template.publish", {"mark": "{mark}"}, an_unfinished_draft),
    page(f"{TEAM}/templates/{{template}}/restore", "template.restore", {"version": "1"}, a_template, again=True),
    page(f"{TEAM}/templates/{{template}}/archive", "template.archive", {}, a_template, again=True),
    page(f"{TEAM}/templates/{{template}}/unarchive", "template.unarchive", {}, an_archived_template, again=True),
    page(f"{TEAM}/templates/{{template}}/discard", "template.discard", {}, a_draft, again=True),
    page(f"{TEAM}/templates/{{template}}/approve", "template.approve", {"mark": "{mark}"}, a_draft, who="operator",
         again=True),
    page(f"{TEAM}/templates/{{template}}/refuse", "template.refuse", {"mark": "{mark}", "reason": "no"}, a_draft,
         who="operator", again=True),
    command("template archive", "template.archive", "{template}", make=a_template, again=True),
    command("template unarchive", "template.unarchive", "{template}", make=an_archived_template, again=True),
    command("template approve", "template.approve", "{template}", make=a_draft, again=True),
    command("template refuse", "template.refuse", "{template}", "--reason", "no", make=a_draft, again=True),
    # a team, its plan and its money
    page(f"{TEAM}/settings", "team.change", {"name": "Name {n}", "credit_low": "1.00"}, a_team, who="operator",
         again=True),
    page(f"{TEAM}/settings/keep", "team.keep", {"keep_content_days": "3", "keep_messages_days": "9"}, a_team,
         who="operator", again=True),
    page(f"{TEAM}/settings/test-clock", "team.test_clock", {"on": "yes"}, a_team, who="operator", again=True),
    page(f"{TEAM}/settings/test-clock/advance", "team.advance", {"hours": "1"}, a_clocked_team, who="operator"),
    page(f"{TEAM}/settings/live", "team.live", {}, a_team, who="operator", again=True),
    page(f"{TEAM}/settings/sandbox", "team.sandbox", {}, a_live_team, who="operator", again=True),
    page(f"{OPERATOR}/teams", "team.create", {"id": "team_new{n}", "name": "Team {n}"}, team="team_new{n}", again=True),
    page(f"{OPERATOR}/teams/{{team}}/plan", "team.plan",
         {"email_quota": "5", "rate_limit": "5", "marketing_per_day": "5", "domains_max": "5", "segmenting": "udh",
          "octets_per_day": "5", "catch": "on"},
         a_team, again=True),
    page(f"{OPERATOR}/teams/{{team}}/suspend", "team.suspend", {"suspended": "yes"}, a_team, again=True),
    page(f"{OPERATOR}/teams/{{team}}/credit", "credit.book", {"amount": "1.00"}, a_team),
    page(f"{OPERATOR}/teams/{{team}}/reputation", "reputation.resume", {}, a_paused_team, again=True),
    command("team create", "team.create", "team_new{n}", team="team_new{n}", again=True),
    command("team suspend", "team.suspend", "{team}", make=a_team, again=True),
    command("team resume", "team.resume", "{team}", make=a_suspended_team, again=True),
    command("team live", "team.live", "{team}", make=a_team, again=True),
    command("team sandbox", "team.sandbox", "{team}", make=a_live_team, again=True),
    command("credit", "credit.book", "{team}", "1.00", make=a_team),
    command("reputation resume", "reputation.resume", "{team}", make=a_paused_team, again=True),
    # the instance
    page(f"{OPERATOR}/platform", "platform.change", {"sandbox_per_day": "7{n}", "prices": ""}, again=True),
    page(f"{OPERATOR}/carriers/{{carrier}}", "carrier.change", {"enabled": "yes", "priority": "7"}, a_carrier,
         again=True),
    page(f"{OPERATOR}/carriers", "carrier.create", {"kind": "email-smtp", "id": "relay-{n}", "host": "127.0.0.1"}),
    page(f"{OPERATOR}/carriers/{{carrier}}", "carrier.order", {"move": "up"}, a_carrier, variant="move"),
    page(f"{OPERATOR}/carriers/{{carrier}}/edit", "carrier.edit", {"step_ms": "7"}, a_carrier, again=True),
    page(f"{OPERATOR}/carriers/{{carrier}}/remove", "carrier.remove", {}, a_carrier, again=True),
    page(f"{OPERATOR}/carriers/{{carrier}}/test", "carrier.test", {"address": "a@example.com"}, a_carrier,
         then=frozenset({"carrier_use"})),  # that it answered
    command("carriers change", "carrier.change", "{carrier}", "--enable", "--priority", "7", make=a_carrier, team=None,
            again=True),
    page(f"{OPERATOR}/queues/pause", "delivery.pause", {"paused": "yes"}, delivery_runs, again=True),
    page(f"{OPERATOR}/queues/pause", "delivery.resume", {}, delivery_is_paused, again=True, variant="resume"),
    page(f"{OPERATOR}/queues/retry", "deadletter.retry", {"place": "{place}"}, a_dead_letter, again=True),
    page(f"{OPERATOR}/queues/drop", "deadletter.drop", {"place": "{place}"}, a_dead_letter, again=True),
    page(f"{OPERATOR}/queues/retry-all", "deadletter.retry", {"until": "{until}", "sure": "yes"}, a_dead_letter,
         again=True),
    page(f"{OPERATOR}/queues/drop-all", "deadletter.drop", {"until": "{until}", "sure": "yes"}, a_dead_letter,
         again=True),
    command("deadletter retry", "deadletter.retry", "{place}", make=a_dead_letter, team=None, again=True),
    command("deadletter retry", "deadletter.retry", "--all", make=a_dead_letter, team=None, again=True, variant="all"),
    command("deadletter drop", "deadletter.drop", "{place}", make=a_dead_letter, team=None, again=True),
    command("deadletter drop", "deadletter.drop", "--all", make=a_dead_letter, team=None, again=True, variant="all"),
    command("pause", "delivery.pause", make=delivery_runs, team=None, again=True),
    command("resume", "delivery.resume", make=delivery_is_paused, team=None, again=True),
    command("import bring", "suppression.import", "resend", "{file}", "--team", "{team}", make=an_export,
            first=PORTIONS, then=IMPORTED),
    command("apply", "setup.apply", "{file}", make=a_file, again=True),
    command("secret rotate", "secret.rotate", team=None, in_parts=True),
    command("secret replace", "secret.replace", make=another_secret, team=None, again=True),
]  # fmt: skip

# What changes nothing of what is managed.
EXCEPTIONS = {
    "POST /dashboard/sign-in": "a session is made, and an entry says so: tests/accounts/test_provider.py",
    "POST /dashboard/sign-in/passkey": "the same: tests/accounts/test_passkeys.py",
    "POST /dashboard/sign-out": "a session is ended by who has it",
    f"POST {TEAM}/inbox/{{id}}/unread": "a mark for the team's own eyes, like the one that opening it leaves",
    f"POST {TEAM}/templates/preview": "shows what stands in the editor",
    f"POST {TEAM}/layouts/preview": "shows what stands in the editor",
    "POST /v1/test-clock": "the page's change, for a sandbox team: tests/api/test_team_clock.py",
    "POST /v1/emails": "accepts a message",
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
    "key list": "reads",
    "key mint": "prints a token and stores nothing",
    "listen": "reads, by the API",
    "migrate": "changes the schema, and no record",
    "preflight": "reads",
    "capacity": "reads",
    "reputation show": "reads",
    "send": "accepts a message, by the API",
    "sender list": "reads",
    "serve": "runs the service",
    "layout list": "reads",
    "template lint": "reads a file",
    "template list": "reads",
    "template show": "reads",
    "suppression list": "reads",
    "team list": "reads",
    "user list": "reads",
    "webhook deliveries": "reads",
    "webhook list": "reads",
    "webhook show": "reads",
}
