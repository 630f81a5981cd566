"""Endpoints with which platform keys manage teams: fields, keys, members, credit and usage."""

from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from heliograph.api import keys
from heliograph.api.call import Call
from heliograph.domain.accounts.idp_groups import ROLES
from heliograph.domain.accounts.portal import PORTAL_PAGES, PortalPage
from heliograph.domain.field_docs import (
    EMAIL,
    MONEY,
    TIME,
    Deleted,
    Id,
    ObjectName,
    Records,
    describe,
    schema_limits,
    with_example,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.unsubscribe import CATEGORIES_MAX, CATEGORY
from heliograph.domain.refusals import NotFound, TeamNotFound, TeamSuspended
from heliograph.domain.sending.pricing import Account, format_money
from heliograph.domain.setup.records import APPROVAL_HOURS_MAX, CHANNELS, Team, TeamRecord
from heliograph.domain.text import LINE_MAX, quoted
from heliograph.manage import credit, people, portals, teams, usage
from heliograph.manage.credit import CreditAdjustment
from heliograph.manage.people import UNMAILED_BY_OPERATOR, NewPerson
from heliograph.texts.dashboard_links import portal_link_page, sign_in_link_page
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response
from heliograph.webhooks.policy.webhook_url import URL_MAX

MONTH = QueryParam(
    "month",
    "UTC month, such as `2026-11`. Default: the current month.",
    {"type": "string", "pattern": "^2[0-9]{3}-(0[1-9]|1[0-2])$"},
)
MEMBERS_AFTER = QueryParam("after", "The last id of the previous page.", {"type": "string", "pattern": "^usr_"})
Count = Annotated[int, schema_limits(minimum=0)]
Countries = Annotated[list[Annotated[str, schema_limits(pattern=r"^([A-Z]{2}|\*)$")]], schema_limits(minItems=1)]
Amount = Annotated[str, schema_limits(pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})?$")]


class VerifyFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    countries: Annotated[Countries | None, describe("Countries that may receive codes: ISO codes, or `*`.")] = None
    per_phone_10m: Annotated[Count | None, describe("Codes to one phone in 10 minutes.", example=5)] = None
    per_phone_day: Annotated[Count | None, describe("Codes to one phone in a day.", example=20)] = None
    per_prefix_10m: Annotated[Count | None, describe("Codes to one number range in 10 minutes.", example=20)] = None
    min_interval_s: Annotated[Count | None, describe("Seconds between two codes to one phone.", example=30)] = None
    wrong_per_phone_day: Annotated[Count | None, describe("Wrong codes of one phone in a day.", example=100)] = None
    conversion_guard: Annotated[bool | None, describe("Stop codes to ranges where few codes are checked.")] = None
    language: Annotated[str | None, describe("Language of the text.", example="en")] = None
    magic: Annotated[bool | None, describe("Whether magic numbers also verify in a live team.")] = None
    inbox: Annotated[bool | None, describe("Whether keys of a sandbox team can read codes in its test inbox.")] = None
    webotp: Annotated[str | None, describe("Domain on which browsers may fill in the code; empty for none.")] = None
    channels: Annotated[
        list[Annotated[str, schema_limits(enum=list(CHANNELS))]] | None,
        describe("Channels that codes can be sent on.", minItems=1, example=["sms"]),
    ] = None


class OptOutFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    words: Annotated[list[str] | None, describe("Words that opt a phone out.", minItems=1, example=["STOP"])] = None
    start_words: Annotated[list[str] | None, describe("Words that opt it in.", minItems=1, example=["START"])] = None
    stop_text: Annotated[str | None, describe("Reply to an opt-out; empty for none.")] = None
    start_text: Annotated[str | None, describe("Reply to an opt-in; empty for none.")] = None
    help_text: Annotated[str | None, describe("Reply to HELP; empty for none.")] = None


class TeamFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of a team, named as in the setup file."""

    name: Annotated[str | None, describe("Name, which recipients see. Default: the id.", example="Acme")] = None
    mode: Annotated[str | None, describe("`sandbox` (default) or `live`.", enum=["sandbox", "live"])] = None
    suspended: Annotated[bool | None, describe("Whether every request of its keys is refused.")] = None
    currency: Annotated[
        str | None, describe("ISO code of the billing currency. Default: USD.", pattern="^[A-Z]{3}$", example="USD")
    ] = None
    email_quota: Annotated[
        Count | None, describe("Recipients of emails a month included in the plan.", example=10000)
    ] = None
    features: Annotated[
        list[Annotated[str, schema_limits(enum=["verify"])]] | None, describe("Features of the plan: `verify`.")
    ] = None
    rate_limit: Annotated[Count | None, describe("Requests a second per key; 0 for no limit.", example=100)] = None
    segmenting: Annotated[
        str | None, describe("How long SMS are split into segments.", enum=["spec", "udh"], example="spec")
    ] = None
    verify: Annotated[VerifyFields | None, describe("Settings of verification codes.")] = None
    opt_out: Annotated[OptOutFields | None, describe("Opt-out words and their replies.")] = None
    marketing_per_day: Annotated[
        Count | None, describe("WhatsApp marketing messages a day per recipient.", example=2)
    ] = None
    credit_low: Annotated[
        Amount | None, describe("Credit below which `credit.low` is published; 0 for never.", example="5.0000")
    ] = None
    octets_per_day: Annotated[
        Count | None, describe("Bytes that can be stored a day; 0 for no limit. Default: that of the mode.")
    ] = None
    domains_max: Annotated[Count | None, describe("Domains that the team can add.", example=50)] = None
    keep_content_days: Annotated[
        int | None, describe("Days that contents are kept.", minimum=1, maximum=90, example=7)
    ] = None
    keep_messages_days: Annotated[
        int | None,
        describe("Days that messages are kept: at least as long as contents.", minimum=1, maximum=3650, example=90),
    ] = None
    passthrough: Annotated[
        str | None, describe("Id (`tpl_…`) of a template with one variable, which receives free text.")
    ] = None
    catch: Annotated[
        bool | None,
        describe("Sandbox only: messages sent by compatibility APIs or SMTP are only captured in the test inbox."),
    ] = None
    test_clock: Annotated[bool | None, describe("Sandbox only: the team controls its own clock.")] = None
    attachment_types: Annotated[
        list[str] | None, describe("Additional attachment types, such as `application/zip`.")
    ] = None
    pool: Annotated[
        str | None,
        describe("Pool of source addresses for direct email.", pattern="^[a-z0-9_-]{1,32}$", example="default"),
    ] = None
    categories: Annotated[
        list[Annotated[str, schema_limits(pattern=f"^{CATEGORY.pattern}$")]] | None,
        describe(
            "Categories of emails that recipients can unsubscribe from; those of approved templates must stay.",
            maxItems=CATEGORIES_MAX,
            example=["newsletter"],
        ),
    ] = None
    approval_hours: Annotated[
        int | None,
        describe(
            "Hours after which a message that waits for approval fails.",
            minimum=1,
            maximum=APPROVAL_HOURS_MAX,
            example=24,
        ),
    ] = None


class TeamRequest(TeamFields, frozen=True, kw_only=True):
    id: Annotated[
        str | None,
        describe("Id of your choice. Default: a generated one.", pattern="^team_[A-Za-z0-9_]{1,64}$"),
    ] = None
    credit: Annotated[Amount | None, describe("Opening balance. Default: 0.", example="25.00")] = None


class TeamChange(TeamFields, frozen=True, kw_only=True):
    pass


class TeamDetails(TeamFields, frozen=True, kw_only=True, omit_defaults=False):
    object: ObjectName = "team"
    id: Annotated[Id, with_example("team_acme")]
    credit: Annotated[str, describe("Available credit, without amounts on hold.", example="25.0000", **MONEY)]
    held: Annotated[str, describe("Credit on hold for messages being sent.", example="0.0000", **MONEY)]
    deletes_at: Annotated[
        str | None, describe("When the team is deleted with all its data; null if it is not to be deleted.", **TIME)
    ]


class TeamList(ListPage, frozen=True, kw_only=True):
    data: Records[TeamDetails]


class MemberRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: Annotated[str, describe("Email address of the person to invite.", **EMAIL)]
    role: Annotated[str, describe("Role in the team.", enum=list(ROLES))]
    name: Annotated[str | None, describe("Name of a new person. Default: the address.")] = None


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "member"
    id: Annotated[str, describe("Id of the person.", example="usr_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    email: Annotated[str, describe("Email address.", example="ada@example.com")]
    name: Annotated[str, describe("Name.", example="Ada")]
    role: Annotated[str, describe("Role in the team.", enum=list(ROLES))]
    invited: Annotated[bool, describe("`true` until the person accepts the invitation: the role is not in effect.")]


class NewMemberRecord(MemberRecord, frozen=True, kw_only=True):
    url: Annotated[
        str,
        describe(
            "Link with which the person accepts, valid once within 7 days. Shown only in this response; send it to "
            "nobody else.",
            example="https://mail.example.com/dashboard/link/…",
        ),
    ]


class MemberList(ListPage, frozen=True, kw_only=True):
    data: Records[MemberRecord]


class DeletedMember(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "member"
    id: Annotated[str, describe("Id of the person.", example="usr_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    deleted: Deleted = True


class CreditRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    amount: Annotated[
        str,
        describe("Amount to add; a negative one is deducted.", pattern=r"^[+-]?[0-9]{1,12}(\.[0-9]{1,6})?$"),
    ]
    reference: Annotated[
        str,
        describe("Your reference, such as an invoice number. It is booked once.", minLength=1, maxLength=LINE_MAX),
    ]


class CreditView(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "credit"
    currency: Annotated[str, describe("ISO code of the billing currency.", example="USD")]
    credit: Annotated[str, describe("Available credit, without amounts on hold.", example="25.0000", **MONEY)]
    held: Annotated[str, describe("Credit on hold for messages being sent.", example="0.0000", **MONEY)]


class CreditBooking(CreditView, frozen=True, kw_only=True):
    """A change of credit; `credit` and `held` are the balances after it."""

    amount: Annotated[str, describe("The amount that was booked.", example="25.0000", **MONEY)]
    reference: Annotated[str, describe("Your reference.", example="invoice 1042")]
    created_at: Annotated[str, describe("When it was booked.", example="2026-11-15T09:30:00.000Z", **TIME)]


class UsageQuota(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, describe("Recipients of emails a month included in the plan.", example=10000)]
    used: Annotated[int | None, describe("Recipients counted; null for a month that is over.", example=412)]


class UsageCounts(msgspec.Struct, frozen=True, kw_only=True):
    sent: Annotated[int, describe("Recipients with a first outcome.", example=412)]
    delivered: Annotated[int, describe("Recipients that it was delivered to.", example=410)]
    bounced: Annotated[int, describe("Recipients that bounced.", example=1)]
    complained: Annotated[int, describe("Recipients that complained.")]
    failed: Annotated[int, describe("Recipients that failed.", example=1)]


class UsageChannels(msgspec.Struct, frozen=True, kw_only=True):
    email: Annotated[UsageCounts, describe("Emails.")]
    sms: Annotated[UsageCounts, describe("SMS messages.")]
    whatsapp: Annotated[UsageCounts, describe("WhatsApp messages.")]


class UsageCharge(msgspec.Struct, frozen=True, kw_only=True):
    kind: Annotated[str, describe("What was charged.", enum=["email", "sms", "whatsapp", "verification"])]
    count: Annotated[int, describe("Number of charges.", example=40)]
    amount: Annotated[str, describe("Sum of the charges.", example="1.8000", **MONEY)]


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "usage"
    team_id: Annotated[str, describe("Id of the team.", example="team_acme")]
    month: Annotated[str, describe("UTC month.", example="2026-11")]
    currency: Annotated[str, describe("ISO code of the billing currency.", example="USD")]
    email_quota: Annotated[UsageQuota, describe("The monthly quota of emails.")]
    channels: Annotated[UsageChannels, describe("Recipients by the outcomes that were reached in the month.")]
    charges: Annotated[list[UsageCharge], describe("Charges by kind; kinds without charges are missing.")]
    total: Annotated[str, describe("Sum of all charges.", example="1.8000", **MONEY)]


class PortalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pages: Annotated[
        list[Annotated[PortalPage, schema_limits(enum=list(PORTAL_PAGES))]],
        describe("Pages of the team that the portal shows.", minItems=1, example=["webhooks", "events"]),
    ]
    return_url: Annotated[
        str | None,
        describe(
            "Where the portal's Back link leads: an https URL, or http on the same machine. Default: no such link.",
            maxLength=URL_MAX,
            example="https://app.example.com/settings",
        ),
    ] = None


class PortalLinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "portal_link"
    url: Annotated[
        str,
        describe(
            "Link that opens the portal, once. Shown only in this response.",
            example="https://mail.example.com/dashboard/portal/open/…",
        ),
    ]
    expires_at: Annotated[
        str, describe("Until when the link can be opened.", example="2026-11-15T09:40:00.000Z", **TIME)
    ]


def find_team(call: Call) -> Team:
    """Return the team in the path; raises TeamNotFound."""
    team = call.context.store.setup.current.teams.get(call.params["id"])
    if team is None:
        raise TeamNotFound(f"There is no team {quoted(call.params['id'])}. {TeamNotFound.fix}", param="id")
    return team


def find_active_team(call: Call) -> Team:
    """Return the team in the path; raises TeamNotFound or TeamSuspended."""
    team = find_team(call)
    if team.record.suspended:
        raise TeamSuspended
    return team


# -- teams ------------------------------------------------------------------------------------------------------------


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), read_after(query, "team") or ""
    all_teams = call.context.store.setup.current.teams
    page = [all_teams[id_].record for id_ in sorted(all_teams) if id_ > after][: limit + 1]
    accounts = await call.context.store.ledger.find_accounts(record.ref for record in page)
    return page_response([_details(record, accounts[record.ref]) for record in page], limit)


async def read(call: Call) -> Response:
    return await _respond(call, find_team(call).record)


async def create(call: Call) -> Response:
    fields = msgspec.to_builtins(to_request(call.json, TeamRequest))
    return await _respond(call, await teams.create(call.context.store, call.actor, fields), 201)


async def change(call: Call) -> Response:
    team, fields = find_team(call).record.id, msgspec.to_builtins(to_request(call.json, TeamChange))
    return await _respond(call, await teams.change(call.context.store, call.actor, team, fields))


async def delete(call: Call) -> Response:
    return await _respond(call, await teams.request_deletion(call.context.store, call.actor, find_team(call).record.id))


async def restore(call: Call) -> Response:
    return await _respond(call, await teams.restore(call.context.store, call.actor, find_team(call).record.id))


async def _respond(call: Call, record: TeamRecord, status: int = 200) -> Response:
    return json_response(_details(record, await call.context.store.ledger.get_account(record.ref)), status)


def _details(record: TeamRecord, account: Account) -> TeamDetails:
    fields: dict[str, Any] = {
        name: value for name, value in asdict(record).items() if name in TeamFields.__struct_fields__
    }
    fields |= {
        "verify": VerifyFields(**asdict(record.verify)),
        "opt_out": OptOutFields(**asdict(record.opt_out)),
        "credit_low": format_money(record.credit_low),
        "passthrough": record.passthrough or None,
    }
    return TeamDetails(
        **fields,
        id=record.id,
        credit=format_money(account.available),
        held=format_money(account.held),
        deletes_at=timestamp(record.deletes_at) if record.deletes_at else None,
    )


# -- keys of a team ---------------------------------------------------------------------------------------------------


async def list_keys(call: Call) -> Response:
    return await keys.list_of_team(call, find_team(call).record.id)


async def create_key(call: Call) -> Response:
    return await keys.create_in_team(call, find_active_team(call).record.id)


async def revoke_key(call: Call) -> Response:
    return await keys.revoke_in_team(call, call.params["key_id"], find_team(call).record.id)


# -- members ----------------------------------------------------------------------------------------------------------


async def list_members(call: Call) -> Response:
    team, query = find_team(call).record.id, call.query()
    limit, after = read_limit(query), query.get("after", "")
    members = sorted(await call.context.store.people.list_members(team), key=lambda member: member.id)
    records = [
        MemberRecord(id=item.id, email=item.email, name=item.name, role=item.role, invited=bool(item.invited))
        for item in members
        if item.id > after
    ]
    return page_response(records, limit)


async def invite_member(call: Call) -> Response:
    team, request = find_active_team(call).record.id, to_request(call.json, MemberRequest)
    new_person = NewPerson(email=request.email, name=request.name or "")
    invitation = await people.invite(
        call.context.store, call.actor, team, new_person, request.role, UNMAILED_BY_OPERATOR
    )
    person = invitation.person
    record = NewMemberRecord(
        id=person.id,
        email=person.email,
        name=person.name,
        role=request.role,
        invited=True,
        url=call.context.base_url + sign_in_link_page(invitation.token),
    )
    return json_response(record, 201)


async def remove_member(call: Call) -> Response:
    team, id_ = find_team(call).record.id, call.params["person_id"]
    members = await call.context.store.people.list_members(team)
    member = next((member for member in members if member.id == id_), None)
    if member is None:
        raise NotFound(f"The team has no member {quoted(id_)}.", param="person_id")
    await people.remove_role(call.context.store, call.actor, id_, member.email, team, member.role)
    return json_response(DeletedMember(id=id_))


# -- credit and usage -------------------------------------------------------------------------------------------------


async def read_credit(call: Call) -> Response:
    record = find_team(call).record
    account = await call.context.store.ledger.get_account(record.ref)
    return json_response(
        CreditView(currency=record.currency, credit=format_money(account.available), held=format_money(account.held))
    )


async def book_credit(call: Call) -> Response:
    record, request = find_team(call).record, to_request(call.json, CreditRequest)
    adjustment = CreditAdjustment(team=record.id, amount=request.amount, note=request.reference)
    booking = await credit.book_once(call.context.store, call.actor, adjustment)
    view = CreditBooking(
        currency=record.currency,
        credit=format_money(booking.available),
        held=format_money(booking.held),
        amount=format_money(booking.amount),
        reference=booking.reference,
        created_at=timestamp(booking.created_at),
    )
    return json_response(view, 201)


async def read_usage(call: Call) -> Response:
    record = find_team(call).record
    result = await usage.read_usage(call.context.store, record.id, call.query().get("month"))
    view = UsageView(
        team_id=record.id,
        month=result.month,
        currency=record.currency,
        email_quota=UsageQuota(limit=record.email_quota, used=result.quota_used),
        channels=UsageChannels(
            **{
                channel: UsageCounts(**{name: getattr(counts, name) for name in UsageCounts.__struct_fields__})
                for channel, counts in result.counts.items()
            }
        ),
        charges=[
            UsageCharge(kind=kind, count=charge.charges, amount=format_money(charge.amount))
            for kind, charge in result.charges.items()
        ],
        total=format_money(sum(charge.amount for charge in result.charges.values())),
    )
    return json_response(view)


# -- portal -----------------------------------------------------------------------------------------------------------


async def create_portal_link(call: Call) -> Response:
    team, request = find_active_team(call).record.id, to_request(call.json, PortalRequest)
    link = await portals.create_link(call.context.store, call.actor, team, request.pages, request.return_url)
    url = call.context.base_url + portal_link_page(link.token)
    return json_response(PortalLinkRecord(url=url, expires_at=timestamp(link.expires_at)), 201)
