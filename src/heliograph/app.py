"""Wires the application: settings → secrets → store → carriers → API and worker.

The only module that names all concrete implementations.
"""

import asyncio
import platform
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog

from heliograph import __version__
from heliograph.accept.admission import Admission
from heliograph.accept.context import Context, Machine
from heliograph.accept.rate import RateLimits
from heliograph.accept.verify_send import send_due
from heliograph.api.app import Api
from heliograph.api.routes import ROUTES
from heliograph.bootstrap import MEND_LOG, log_fault, pause_if_turned_back, sqlite_path
from heliograph.carrier_failover import Handover
from heliograph.carriers.contract import Carrier, Carriers, NotReady, Unusable
from heliograph.carriers.email import dns_check
from heliograph.carriers.email.mx import Mx, asking
from heliograph.carriers.email.outgoing import Outgoing
from heliograph.carriers.email.relay import Relay
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.carriers.email.smtp import SmtpOptions
from heliograph.carriers.http_client import CheckedAddresses, NoAnswer, Unreachable, Web
from heliograph.carriers.sms.http import Http
from heliograph.carriers.sms.simulator import SmsSimulator
from heliograph.carriers.sms.smpp.carrier import Smpp
from heliograph.carriers.sms.twilio import Twilio
from heliograph.carriers.whatsapp.cloud_api import CloudApi
from heliograph.carriers.whatsapp.simulator import WhatsappSimulator
from heliograph.compat.adapters import SURFACES
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.oidc import Provider, ProviderAway, ProviderOptions
from heliograph.dashboard.page_request import PageTools
from heliograph.data_folder import Secrets, backed_up_at
from heliograph.deliver.jobs import audit_chain, ledger, master_secret
from heliograph.deliver.jobs.clock_check import watch_clock
from heliograph.deliver.jobs.imports import import_suppressions
from heliograph.deliver.jobs.notices import Teller
from heliograph.deliver.jobs.periodic import Loop, every
from heliograph.deliver.jobs.rate_sync import share_rates
from heliograph.deliver.jobs.reclaim import reclaim_dead
from heliograph.deliver.jobs.refresh import follow_others
from heliograph.deliver.jobs.reputation import judge_teams
from heliograph.deliver.jobs.search_index import build_grams
from heliograph.deliver.jobs.sqlite_wal import watch_log
from heliograph.deliver.jobs.team_clocks import move_clocks
from heliograph.deliver.worker import Worker
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, TextPart
from heliograph.domain.limits import MIB
from heliograph.domain.mail import dkim
from heliograph.domain.mail.address import normal_domain
from heliograph.domain.phones.opt_out import PhoneChannel
from heliograph.domain.setup import records
from heliograph.domain.setup.carrier_kinds import (
    CloudApiOptions,
    HttpOptions,
    MxOptions,
    RelayOptions,
    SmppOptions,
    TwilioOptions,
)
from heliograph.domain.setup.secrets import opened
from heliograph.encryption import CannotOpen, Sealer
from heliograph.inbound.mail_service import Incoming
from heliograph.inbound.report_service import (
    address_of,
    apply_early,
    take_by_carrier,
    take_by_recipient,
    take_texts,
)
from heliograph.inbound.server.bounce_server import IncomingMail, incoming_server
from heliograph.manage.domains import Domains
from heliograph.manage.management import Management
from heliograph.manage.notices import ChatHooks
from heliograph.runtime.clock import Clock
from heliograph.runtime.loop_watchdog import LoopWatch
from heliograph.settings import BadSetting, Settings
from heliograph.smtp.certificate import Certificate, certificate_until
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import Tls
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.submission import intake
from heliograph.submission.session import submission_server
from heliograph.web.budget import ByteBudget
from heliograph.web.dispatcher import Front
from heliograph.web.read_budget import Reads
from heliograph.webhooks.client.http_post import Poster
from heliograph.webhooks.client.ssrf_guard import Denied, Guard, Unresolved
from heliograph.webhooks.endpoint import Opened
from heliograph.webhooks.policy import signature
from heliograph.webhooks.service import RefusalOf, Webhooks
from heliograph.webhooks.worker import WebhookWorker

log = structlog.get_logger()

# Errors for secrets that were encrypted with a previous master secret, with the fix for each.
LOST = "cannot be opened: the service's secret was changed"
LOST_CARRIER = f"the carrier's secrets {LOST}. Apply the setup file with them again"
LOST_WEBHOOK = f"its signing secret {LOST}. Rotate it, and give the new one to the receiver"
LOST_DKIM = f"the domain's DKIM keys {LOST}. Rotate them, and publish the new records"
PROVIDER_S = 5.0  # timeout of the identity provider: a user waits for the response


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of carriers besides their own options."""

    step_ms: int  # default delay between the states of a simulated message
    helo: str | None  # name sent to mail servers in EHLO; None for our IP address
    outgoing: Outgoing
    sealer: Sealer
    web: Web
    checked_web: Web  # with SSRF protection, for addresses that users configure
    # Called with delivery reports of carriers that hold a connection
    report: Callable[[str, Sequence[CarrierReport]], Awaitable[None]]
    take_texts: Callable[[str, PhoneChannel, Sequence[IncomingText | TextPart]], Awaitable[None]]
    base_url: str
    mailbox: Incoming  # receives the replies of simulated mailboxes

    def callback_url(self, carrier: str) -> str:
        return f"{self.base_url}/carriers/{carrier}/callback"


def _simulator(kind: Callable[[int], Carrier]) -> Callable[[records.CarrierRecord, Tools], Carrier]:
    return lambda record, tools: kind(record.options.get("step_ms", tools.step_ms))


# (channel, kind) → factory of that carrier; secrets in the record are decrypted.
CARRIERS: dict[tuple[str, str], Callable[[records.CarrierRecord, Tools], Carrier]] = {
    ("email", "mx"): lambda record, tools: Mx(
        msgspec.convert({"helo": tools.helo or ""} | record.options, MxOptions), tools.outgoing.prepare
    ),
    ("email", "smtp"): lambda record, tools: Relay(
        msgspec.convert(record.options, RelayOptions),
        tools.outgoing.prepare,
        web=tools.checked_web,
        smtp_options=SmtpOptions(helo=tools.helo),
    ),
    ("sms", "smpp"): lambda record, tools: Smpp(
        msgspec.convert(record.options, SmppOptions),
        partial(tools.report, record.id),
        partial(tools.take_texts, record.id, "sms"),
    ),
    ("sms", "twilio"): lambda record, tools: Twilio(
        msgspec.convert(record.options, TwilioOptions), tools.web, tools.callback_url(record.id)
    ),
    ("sms", "http"): lambda record, tools: Http(
        msgspec.convert(record.options, HttpOptions), tools.web, tools.callback_url(record.id)
    ),
    ("whatsapp", "cloud_api"): lambda record, tools: CloudApi(
        msgspec.convert(record.options, CloudApiOptions), tools.web
    ),
    ("email", "simulator"): lambda record, tools: EmailSimulator(
        record.options.get("step_ms", tools.step_ms), tools.mailbox
    ),
    ("sms", "simulator"): _simulator(SmsSimulator),
    ("whatsapp", "simulator"): _simulator(WhatsappSimulator),
}


LOOP_WATCH = "loop watch"


class App(msgspec.Struct, frozen=True, kw_only=True):
    """The components of a running process."""

    settings: Settings
    role: str
    store: Store
    context: Context
    front: Front
    workers: Sequence[Worker | WebhookWorker]  # empty in a process that only serves the API
    returns: SmtpServer | None  # receives bounces and inbound mail
    submissions: SmtpServer
    duties: dict[str, Loop]  # background jobs by name; they run until cancelled, the workers until stopped
    clients: Sequence[Carriers | Web | Poster]  # clients with open connections, closed at shutdown

    async def stop_work(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers))

    async def close(self) -> None:
        for client in self.clients:
            await client.close()


def build(
    settings: Settings,
    role: str,
    secrets: Secrets,
    store: Store,
    clock: Clock,
    process: int | None = None,
    test_token: str = "",
) -> App:
    """Build the components of a process; must be called inside the event loop. The caller closes the result.

    `role`: all, api or worker. `process`: number of this process among several.
    """
    works, answers = role != "api", role != "worker"
    domains = make_domains(settings, secrets, store, clock)
    tools = make_tools(settings, secrets, store, clock, domains)
    carriers = Carriers(lambda record: make_carrier(record, tools))
    handover = Handover(store, carriers, clock)
    guard = Guard(settings.webhook_allow_private, own=settings.base_url)
    poster, watch, limits = Poster(guard), LoopWatch(settings.watchdog_s), RateLimits()
    worker = Worker(store, handover, clock)
    webhooks = WebhookWorker(store, poster, clock, partial(webhook_secrets, secrets.sealer))
    context = make_context(
        settings, secrets, store, clock, handover, is_worker=not answers, process=process, test_token=test_token
    )
    management = Management(
        domains=domains,
        webhooks=make_webhooks(settings, secrets, store, clock),
        chats=make_chats(settings, secrets, store, clock),
        seal=secrets.sealer.seal,
    )
    teller = Teller(
        store=store,
        handover=handover,
        poster=poster,
        base_url=settings.base_url,
        open_hook=lambda sealed, team: secrets.sealer.open(sealed, f"chat/{team}").decode(),
    )
    budget, door = ByteBudget(settings.body_memory_mb * MIB), Admission(context, limits)
    certificate = make_certificate(settings)
    tls: Tls = lambda: certificate.context if certificate else None  # noqa: E731
    duties: dict[str, Loop] = {LOOP_WATCH: watch.run} | shared_duties(context, secrets)
    if answers:
        duties["rates"] = partial(share_rates, store, clock, limits)
    if certificate:
        duties["certificate"] = certificate.watch
    if works:
        duties |= {"worker": worker.run, "webhooks": webhooks.run} | worker_duties(
            settings, context, carriers, domains, teller
        )
    return App(
        settings=settings,
        role=role,
        store=store,
        context=context,
        front=make_front(settings, secrets, context, management, door, budget, tools.outgoing, tools.web),
        workers=[worker, webhooks] if works else [],
        returns=make_returns(settings, secrets, store, clock, tls) if works and settings.bounce_listen else None,
        submissions=submission_server(mail_name(settings, store), tls, intake.MailIntake(context, door), budget),
        duties=duties,
        clients=[carriers, tools.web, tools.checked_web, poster],
    )


def make_context(
    settings: Settings,
    secrets: Secrets,
    store: Store,
    clock: Clock,
    handover: Handover,
    *,
    is_worker: bool,
    process: int | None,
    test_token: str,
) -> Context:
    return Context(
        store=store,
        clock=clock,
        handover=handover,
        base_url=settings.base_url,
        code_key=secrets.codes,
        reply_key=secrets.envelope,
        unseal=secrets.sealer.open,
        test_token=test_token.encode(),
        process=process,
        about={
            "version": __version__,
            "python": platform.python_version(),
            "database": "sqlite" if settings.database.startswith("sqlite") else "postgresql",
        },
        machine=Machine(
            disk_free=lambda: shutil.disk_usage(settings.data).free,
            certificate_until=lambda: certificate_until(settings.submission_cert),
            backup_at=partial(backed_up_at, settings.data),
        ),
        is_worker=is_worker,
        metrics_allow=settings.metrics_allow,
        metrics_token=settings.metrics_token,
    )


def make_front(
    settings: Settings,
    secrets: Secrets,
    context: Context,
    management: Management,
    door: Admission,
    budget: ByteBudget,
    outgoing: Outgoing,
    web: Web,
) -> Front:
    """Create the API and the dashboard, which share one byte budget with SMTP submission."""
    foreign = [route for surface in SURFACES for route in surface.routes]
    tools = PageTools(
        context=context,
        management=management,
        seal=secrets.sealer.seal,
        unseal=secrets.sealer.open,
        eml=outgoing.plain,
        routes=(*(route.name for route in (*ROUTES, *foreign) if route.scopes is not None), intake.ROUTE),
        provider=make_provider(settings, context.clock, web),
        reads=Reads(ByteBudget(settings.body_memory_mb * MIB)),
        passwords=settings.password_sign_in,
        smtp=tuple(place.rpartition(":")[2] for place in settings.submission()),
    )
    api = Api(context, management, door, budget, SURFACES, tools.reads)
    return Front(api, Dashboard(tools, budget), settings.trusted_proxies, context.store.setup)


def make_provider(settings: Settings, clock: Clock, web: Web) -> Provider | None:
    """Return the identity provider for sign-in, or None if not configured."""
    if not settings.oidc_issuer:
        return None

    async def ask(method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        try:
            answer = await web.ask(method, url, headers=headers, body=body, timeout_s=PROVIDER_S)
        except Unreachable as error:
            raise ProviderAway(str(error)) from None
        except NoAnswer:
            raise ProviderAway("it gave no answer") from None
        return answer.status, answer.body

    options = ProviderOptions(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        name=settings.oidc_name or urlsplit(settings.oidc_issuer).hostname or "",
        scopes=settings.oidc_scopes,
        groups_claim=settings.oidc_groups_claim,
        roles=settings.oidc_roles,
        email_trusted=settings.oidc_email_trusted,
        callback=f"{settings.base_url}/dashboard/sign-in/callback",
    )
    return Provider(options, ask, clock.now)


def served_calls(service: str) -> list[tuple[str, str]]:
    """Return (method, path) of every call of the foreign API `service` that Heliograph serves."""
    prefix = f"/compat/{service}"
    routes = [route for surface in SURFACES if surface.prefix == prefix for route in surface.routes]
    return [(route.method, route.path.removeprefix(prefix)) for route in routes]


def shared_duties(context: Context, secrets: Secrets) -> dict[str, Loop]:
    """Return the background jobs that every process runs, by name."""
    store, state = context.store, context.state
    return {
        "hints": store.listen,
        "follow": partial(follow_others, store),
        "clock": partial(watch_clock, store, context.clock),
        "imports": partial(import_suppressions, store),
        "secret": every(2.0, master_secret.following(store, secrets.adopt)),
        # These two keep their data while the database is unavailable.
        "key uses": every(60.0, partial(store.requests.write_key_uses, state.used), finish=True),
        "request log": every(1.0, partial(state.requests.write_in_time, store.requests), finish=True),
    }


def worker_duties(
    settings: Settings, context: Context, carriers: Carriers, domains: Domains, teller: Teller
) -> dict[str, Loop]:
    """Return the background jobs of worker processes, by name."""
    store = context.store
    return {
        "test clocks": partial(move_clocks, store),
        "grams": partial(build_grams, store),
        "early reports": every(0.25, partial(apply_early, store)),
        "carriers": every(1.0, lambda: carriers.keep(store.setup.current.carriers)),
        "codes": every(1.0, partial(send_due, context)),
        "delays": every(1.0, store.delays.tell_due),
        "expiry": every(1.0, store.expiry.fail_expired),
        "notices": every(1.0, teller.round),
        "domain watch": every(2.5, domains.check_watched),  # checks recently changed domains
        "incomplete texts": every(5.0, store.texts.report_incomplete),
        "reclaim": every(5.0, partial(reclaim_dead, store)),
        # A restored database copy older than this interval is detected.
        "turned back": every(10.0, partial(pause_if_turned_back, store, settings.data, sqlite_path(settings))),
        # Entries written by a previous version
        "audit": every(60.0, partial(audit_chain.link_audit, store, store.clock)),
        "audit end": every(60.0, audit_chain.telling(store)),
        "ledger": every(60.0, ledger.comparing(store)),
        "reputation": every(60.0, partial(judge_teams, store)),
        "retention": every(60.0, store.upkeep.purge),
        "domain checks": every(600.0, domains.check_due),
        "SQLite's log": every(600.0, partial(watch_log, partial(log_fault, settings), MEND_LOG)),
        "blobs": every(3600.0, store.attachments.sweep),  # deletes attachment files that no message uses any more
    }


def make_returns(settings: Settings, secrets: Secrets, store: Store, clock: Clock, tls: Tls) -> SmtpServer:
    """Create the SMTP server for bounces, complaints and inbound mail of teams."""
    incoming = IncomingMail(
        secrets.envelope,
        clock.now,
        partial(address_of, store),
        partial(take_by_recipient, store),
        signing_keys(store, secrets.sealer),
        lambda domain: domain == mail_name(settings, store).lower() or store.setup.current.has_domain(domain),
        mailbox=Incoming(store, secrets.envelope, clock.new_id),
        folder=settings.data,
        ask=asking("{}:{}".format(*settings.resolver) if settings.resolver else None),
    )
    return incoming_server(mail_name(settings, store), tls, incoming)


def mail_name(settings: Settings, store: Store) -> str:
    """Return the host name that we announce to mail servers and clients."""
    return store.setup.current.platform.mail_host or urlsplit(settings.base_url).hostname or ""


def make_certificate(settings: Settings) -> Certificate | None:
    """Load the certificate of the SMTP submission and bounce servers; None if not configured."""
    if settings.submission_cert is None or settings.submission_key is None:
        return None
    try:
        return Certificate(settings.submission_cert, settings.submission_key)
    except OSError as error:  # includes ssl.SSLError
        raise BadSetting(
            f"HELIOGRAPH_SUBMISSION_CERT={settings.submission_cert} and HELIOGRAPH_SUBMISSION_KEY="
            f"{settings.submission_key}: no certificate with its key can be read: {error}"
        ) from None


def make_carrier(record: records.CarrierRecord, tools: Tools) -> Carrier:
    try:
        options = opened(record.options, lambda text, field: tools.sealer.open(text, f"carrier/{record.id}/{field}"))
    except CannotOpen:
        return Unusable(LOST_CARRIER)
    return CARRIERS[record.channel, record.kind](msgspec.structs.replace(record, options=options), tools)


def make_tools(settings: Settings, secrets: Secrets, store: Store, clock: Clock, domains: Domains) -> Tools:
    return Tools(
        step_ms=settings.simulator_step_ms,
        helo=normal_domain(mail_name(settings, store)),
        outgoing=Outgoing(
            ensure_keys=domains.ensure_keys,
            keys_of=signing_keys(store, secrets.sealer),
            bring_blob=partial(bring_attachment, store),
            open_blob=store.blobs.open,
            envelope_key=secrets.envelope,
            entropy=clock.entropy,
            now=clock.now,
        ),
        sealer=secrets.sealer,
        web=Web(),
        checked_web=Web(resolver=CheckedAddresses(partial(checked_addresses, Guard(settings.webhook_allow_private)))),
        report=partial(take_by_carrier, store),
        take_texts=partial(take_texts, store),
        base_url=settings.base_url,
        mailbox=Incoming(store, secrets.envelope, clock.new_id),
    )


async def checked_addresses(guard: Guard, host: str) -> Sequence[str]:
    """Return the addresses of a host; raise OSError if the name does not resolve or connecting is forbidden (SSRF)."""
    try:
        return (await guard.check(f"https://{host}/")).addresses
    except (Denied, Unresolved) as error:
        raise OSError(str(error)) from None


async def bring_attachment(store: Store, hash_: str) -> None:
    """Fetch an attachment from the object store to the local files.

    Failures raise NotReady, so that an unavailable or lost attachment does not open the carrier's circuit.
    """
    try:
        await store.attachments.bring(hash_)
    except FileNotFoundError as error:
        log.error("an attachment is gone", hash=hash_)
        raise NotReady("an attachment is gone from the object store") from error
    except StoreUnavailable as error:
        log.warning("cannot read an attachment", error=str(error))
        raise NotReady("an attachment cannot be read now") from error


def make_domains(
    settings: Settings, secrets: Secrets, store: Store, clock: Clock, resolver: tuple[str, int] | None = None
) -> Domains:
    def make_key(algorithm: Any) -> tuple[bytes, str]:
        private = dkim.make_key(algorithm)
        return private, dkim.public_record(private)

    return Domains(
        store,
        clock,
        seal=secrets.sealer.seal,
        make_key=make_key,
        ask=lambda records: dns_check.check(records, resolver or settings.resolver),
        zone_of=lambda domain: dns_check.zone_of(domain, resolver or settings.resolver),
        ownership_key=secrets.ownership,
        mail_host=urlsplit(settings.base_url).hostname or "localhost",
    )


def make_webhooks(settings: Settings, secrets: Secrets, store: Store, clock: Clock) -> Webhooks:
    return Webhooks(
        store,
        clock,
        vault=secrets.sealer,
        make_secret=lambda: signature.make_secret(clock.entropy(signature.ENTROPY_MIN)),
        make_pair=make_pair,
        refusal_of=webhook_refusal(settings, own=settings.base_url),
    )


def make_pair() -> tuple[bytes, str]:
    """Return a new private key as PEM, and its public key in base64."""
    private = dkim.make_key("rsa-sha256")
    return private, dkim.public_record(private).partition("p=")[2]


def make_chats(settings: Settings, secrets: Secrets, store: Store, clock: Clock) -> ChatHooks:
    return ChatHooks(store, clock, vault=secrets.sealer, refusal_of=webhook_refusal(settings))


def webhook_refusal(settings: Settings, own: str = "") -> RefusalOf:
    guard = Guard(settings.webhook_allow_private, own=own)

    async def refusal_of(url: str) -> str | None:
        try:
            await guard.check(url)
        except Denied as error:
            return str(error)
        except Unresolved:
            pass  # DNS may resolve later; every attempt checks again
        return None

    return refusal_of


def make_signature() -> Callable[[], bytes]:
    """Return a function that signs a typical mail with both key types, as sending does; for benchmarks."""
    algorithms: tuple[dkim.Algorithm, ...] = ("rsa-sha256", "ed25519-sha256")
    keys = [dkim.SigningKey(selector=a[:3], algorithm=a, private=dkim.make_key(a)) for a in algorithms]
    signer = dkim.Signer("example.test", keys)
    headers = b"From: <a@example.test>\r\nTo: <b@example.test>\r\nSubject: Hello\r\n"
    return lambda: signer.sign(headers, [b"It will arrive on Thursday.\r\n" * 100], time_ms=0)


def webhook_secrets(sealer: Sealer, hook: records.Webhook, now: int) -> Opened:
    """Return the signing secrets of a webhook, including the previous secret during a rotation.

    Raises ValueError with the reason if they cannot be decrypted.
    """
    try:
        secrets = [sealer.open(hook.secret, f"webhook/{hook.id}").decode()]
        login = sealer.open(hook.login, f"webhook/{hook.id}/login").decode() if hook.login else ""
        key = sealer.open(hook.private_key, f"webhook/{hook.id}/key").decode() if hook.private_key else ""
    except CannotOpen:
        raise ValueError(LOST_WEBHOOK) from None
    if hook.old_secret and hook.old_until > now:
        with suppress(CannotOpen):
            secrets.append(sealer.open(hook.old_secret, f"webhook/{hook.id}/old").decode())
    return Opened(secrets=secrets, login=login, key=key)


def signing_keys(store: Store, sealer: Sealer) -> Callable[[str], tuple[dkim.SigningKey, ...]]:
    """Return a function that returns the active DKIM keys of a domain.

    That function returns no keys if no team has the domain or the domain has none yet, and raises NotReady if the keys
    cannot be decrypted.
    """
    seen, opened = store.setup.current, dict[str, tuple[dkim.SigningKey, ...]]()

    def open_key(key: records.DkimKey) -> dkim.SigningKey:
        try:
            private = sealer.open(key.sealed, f"dkim/{key.id}")
        except CannotOpen:
            raise NotReady(LOST_DKIM) from None
        return dkim.SigningKey(selector=key.selector, algorithm=key.algorithm, private=private)

    def keys_of(name: str) -> tuple[dkim.SigningKey, ...]:
        # Cached until the setup changes: decrypting two keys takes 75 µs per mail.
        nonlocal seen
        if seen is not store.setup.current:
            seen = store.setup.current
            opened.clear()
        if name not in opened:
            domain = seen.domain_named(name)
            keys = seen.keys_of(domain) if domain else []
            if not keys:  # do not cache: `name` can be any domain
                return ()
            opened[name] = tuple(open_key(key) for key in keys if key.state == "active")
        return opened[name]

    return keys_of
