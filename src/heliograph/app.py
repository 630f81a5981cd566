"""Wires the application; the only module that names all concrete implementations."""

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
from heliograph.accept.context import Context, HostMetrics
from heliograph.accept.rate import RateLimits
from heliograph.accept.verify_send import send_due_codes
from heliograph.api.app import Api
from heliograph.api.routes import ROUTES
from heliograph.bootstrap import WAL_FIX, pause_if_restored, sqlite_path, wal_fault
from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carrier, Carriers, InvalidCarrier, NotReady
from heliograph.carriers.email import dns_check
from heliograph.carriers.email.mx import Mx, dns_query_function
from heliograph.carriers.email.outgoing import MailPreparer
from heliograph.carriers.email.provider_limiter import ApplyExchange
from heliograph.carriers.email.relay import Relay
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.carriers.email.smtp import SmtpOptions
from heliograph.carriers.http_client import CarrierHttp, CheckedAddresses, NoResponse, Unreachable
from heliograph.carriers.sms.http import HttpCarrier
from heliograph.carriers.sms.simulator import SmsSimulator
from heliograph.carriers.sms.smpp.carrier import Smpp
from heliograph.carriers.sms.twilio import Twilio
from heliograph.carriers.whatsapp.cloud_api import CloudApi
from heliograph.carriers.whatsapp.simulator import WhatsappSimulator
from heliograph.compat.adapters import ADAPTERS
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.oidc import Provider, ProviderOptions, ProviderUnavailable
from heliograph.dashboard.page_request import PageTools
from heliograph.data_folder import Secrets, backed_up_at
from heliograph.deliver.jobs import audit_chain, ledger, master_secret
from heliograph.deliver.jobs.clock_check import watch_clock
from heliograph.deliver.jobs.imports import import_suppressions
from heliograph.deliver.jobs.notices import NoticeSender
from heliograph.deliver.jobs.periodic import Loop, every
from heliograph.deliver.jobs.rate_sync import sync_rate_limits
from heliograph.deliver.jobs.reclaim import reclaim_dead_claims
from heliograph.deliver.jobs.refresh import refresh_shared_state
from heliograph.deliver.jobs.reputation import update_reputations
from heliograph.deliver.jobs.search_index import build_search_index
from heliograph.deliver.jobs.sqlite_wal import warn_if_wal_grows
from heliograph.deliver.jobs.team_clocks import advance_test_clocks
from heliograph.deliver.worker import Worker
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, TextPart
from heliograph.domain.limits import MIB
from heliograph.domain.mail import dkim
from heliograph.domain.mail.address import normalize_domain
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
from heliograph.domain.setup.secrets import decrypt_options
from heliograph.encryption import Cipher, DecryptionError
from heliograph.inbound.aggregate_report_service import AggregateReportService
from heliograph.inbound.mail_service import InboundMailService
from heliograph.inbound.report_service import (
    apply_early_reports,
    count_complaint,
    recipient_address,
    store_carrier_reports,
    store_inbound_texts,
    store_recipient_report,
)
from heliograph.inbound.server.bounce_server import InboundMailHandler, create_inbound_server
from heliograph.manage.domains import Domains
from heliograph.manage.management import Management
from heliograph.manage.notices import ChatHooks
from heliograph.manage.unsubscribes import unsubscribe_by_mail
from heliograph.runtime.clock import Clock
from heliograph.runtime.loop_watchdog import LoopWatch
from heliograph.settings import BadSetting, Settings
from heliograph.smtp.certificate import Certificate, certificate_expiry
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import GetTlsContext
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.submission import intake
from heliograph.submission.session import submission_server
from heliograph.web.budget import ByteBudget
from heliograph.web.dispatcher import Dispatcher
from heliograph.web.read_budget import ReadBudget
from heliograph.webhooks.client.http_post import WebhookHttpClient
from heliograph.webhooks.client.ssrf_guard import HostUnresolved, SsrfGuard, TargetDenied
from heliograph.webhooks.endpoint import WebhookSecrets
from heliograph.webhooks.policy import signature
from heliograph.webhooks.service import FindRefusal, Webhooks
from heliograph.webhooks.worker import WebhookWorker

log = structlog.get_logger()

# Errors for secrets that were encrypted with a previous master secret, with the fix for each.
UNDECRYPTABLE = "cannot be decrypted: the service's secret was changed"
CARRIER_SECRETS_LOST = f"the carrier's secrets {UNDECRYPTABLE}. Apply the setup file with them again"
WEBHOOK_SECRET_LOST = f"its signing secret {UNDECRYPTABLE}. Rotate it, and give the new one to the receiver"
DKIM_KEYS_LOST = f"the domain's DKIM keys {UNDECRYPTABLE}. Rotate them, and publish the new records"
PROVIDER_S = 5.0  # timeout of requests to the identity provider, short because a user waits


class CarrierDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of carriers besides their own options."""

    step_ms: int  # default delay in ms between the states of a simulated message
    helo: str | None  # name sent to mail servers in EHLO; None for our IP address
    outgoing: MailPreparer
    cipher: Cipher
    http: CarrierHttp
    checked_http: CarrierHttp  # with SSRF protection, for addresses that users configure
    # Called with the delivery reports of carriers that have a persistent connection (SMPP)
    report: Callable[[str, Sequence[CarrierReport]], Awaitable[None]]
    receive_texts: Callable[[str, PhoneChannel, Sequence[IncomingText | TextPart]], Awaitable[None]]
    base_url: str
    mailbox: InboundMailService  # receives the replies of simulated mailboxes
    exchange_rates: ApplyExchange  # reads and updates the provider rates shared by all processes
    now: Callable[[], int]

    def callback_url(self, carrier: str) -> str:
        return f"{self.base_url}/carriers/{carrier}/callback"


def _simulator(
    carrier_class: Callable[[int], Carrier],
) -> Callable[[records.CarrierRecord, CarrierDependencies], Carrier]:
    return lambda record, dependencies: carrier_class(record.options.get("step_ms", dependencies.step_ms))


# (channel, kind) → factory of that carrier; secrets in the record are decrypted.
CARRIER_FACTORIES: dict[tuple[str, str], Callable[[records.CarrierRecord, CarrierDependencies], Carrier]] = {
    ("email", "mx"): lambda record, dependencies: Mx(
        msgspec.convert({"helo": dependencies.helo or ""} | record.options, MxOptions),
        dependencies.outgoing.prepare,
        carrier=record.id,
        exchange=dependencies.exchange_rates,
        now=dependencies.now,
    ),
    ("email", "smtp"): lambda record, dependencies: Relay(
        msgspec.convert(record.options, RelayOptions),
        dependencies.outgoing.prepare,
        http=dependencies.checked_http,
        smtp_options=SmtpOptions(helo=dependencies.helo),
    ),
    ("sms", "smpp"): lambda record, dependencies: Smpp(
        msgspec.convert(record.options, SmppOptions),
        partial(dependencies.report, record.id),
        partial(dependencies.receive_texts, record.id, "sms"),
    ),
    ("sms", "twilio"): lambda record, dependencies: Twilio(
        msgspec.convert(record.options, TwilioOptions), dependencies.http, dependencies.callback_url(record.id)
    ),
    ("sms", "http"): lambda record, dependencies: HttpCarrier(
        msgspec.convert(record.options, HttpOptions), dependencies.http, dependencies.callback_url(record.id)
    ),
    ("whatsapp", "cloud_api"): lambda record, dependencies: CloudApi(
        msgspec.convert(record.options, CloudApiOptions), dependencies.http
    ),
    ("email", "simulator"): lambda record, dependencies: EmailSimulator(
        record.options.get("step_ms", dependencies.step_ms), dependencies.mailbox
    ),
    ("sms", "simulator"): _simulator(SmsSimulator),
    ("whatsapp", "simulator"): _simulator(WhatsappSimulator),
}

LOOP_WATCHDOG = "loop watch"


class App(msgspec.Struct, frozen=True, kw_only=True):
    """The components of a running process."""

    settings: Settings
    role: str
    store: Store
    context: Context
    dispatcher: Dispatcher
    workers: Sequence[Worker | WebhookWorker]  # empty in a process that only serves the API
    inbound_server: SmtpServer | None  # receives bounces and inbound mail
    submission_server: SmtpServer
    jobs: dict[str, Loop]  # background jobs by name; they run until cancelled, the workers until stopped
    clients: Sequence[Carriers | CarrierHttp | WebhookHttpClient]  # clients with open connections, closed at shutdown

    async def stop_workers(self) -> None:
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
    is_worker, serves_api = role != "api", role != "worker"
    domains = make_domains(settings, secrets, store, clock)
    dependencies = make_carrier_dependencies(settings, secrets, store, clock, domains)
    carriers = Carriers(lambda record: make_carrier(record, dependencies))
    failover = CarrierFailover(store, carriers, clock)
    guard = SsrfGuard(settings.webhook_allow_private, own_base_url=settings.base_url)
    poster, loop_watch, limits = WebhookHttpClient(guard), LoopWatch(settings.watchdog_s), RateLimits()
    worker = Worker(store, failover, clock)
    webhooks = WebhookWorker(store, poster, clock, partial(webhook_secrets, secrets.cipher))
    context = make_context(
        settings, secrets, store, clock, failover, is_worker=not serves_api, process=process, test_token=test_token
    )
    management = Management(
        domains=domains,
        webhooks=make_webhooks(settings, secrets, store, clock),
        chats=make_chats(settings, secrets, store, clock),
        encrypt=secrets.cipher.encrypt,
    )
    notice_sender = NoticeSender(
        store=store,
        failover=failover,
        poster=poster,
        base_url=settings.base_url,
        decrypt_hook=lambda encrypted, team: secrets.cipher.decrypt(encrypted, f"chat/{team}").decode(),
    )
    budget, admission = ByteBudget(settings.body_memory_mb * MIB), Admission(context, limits)
    certificate = make_certificate(settings)
    tls: GetTlsContext = lambda: certificate.context if certificate else None  # noqa: E731
    jobs: dict[str, Loop] = {LOOP_WATCHDOG: loop_watch.run} | shared_jobs(context, secrets)
    if serves_api:
        jobs["rates"] = partial(sync_rate_limits, store, clock, limits)
    if certificate:
        jobs["certificate"] = certificate.watch
    if is_worker:
        jobs |= {"worker": worker.run, "webhooks": webhooks.run} | worker_jobs(
            settings, context, carriers, domains, notice_sender
        )
    return App(
        settings=settings,
        role=role,
        store=store,
        context=context,
        dispatcher=make_dispatcher(
            settings, secrets, context, management, admission, budget, dependencies.outgoing, dependencies.http
        ),
        workers=[worker, webhooks] if is_worker else [],
        inbound_server=make_inbound_server(settings, secrets, store, clock, tls)
        if is_worker and settings.bounce_listen
        else None,
        submission_server=submission_server(
            mail_name(settings, store), tls, intake.MailIntake(context, admission), budget
        ),
        jobs=jobs,
        clients=[carriers, dependencies.http, dependencies.checked_http, poster],
    )


def make_context(
    settings: Settings,
    secrets: Secrets,
    store: Store,
    clock: Clock,
    failover: CarrierFailover,
    *,
    is_worker: bool,
    process: int | None,
    test_token: str,
) -> Context:
    return Context(
        store=store,
        clock=clock,
        failover=failover,
        base_url=settings.base_url,
        code_key=secrets.code_key,
        reply_key=secrets.envelope_key,
        decrypt=secrets.cipher.decrypt,
        test_token=test_token.encode(),
        process=process,
        build_info={
            "version": __version__,
            "python": platform.python_version(),
            "database": "sqlite" if settings.database.startswith("sqlite") else "postgresql",
        },
        host_metrics=HostMetrics(
            disk_free=lambda: shutil.disk_usage(settings.data).free,
            certificate_until=lambda: certificate_expiry(settings.submission_cert),
            backup_at=partial(backed_up_at, settings.data),
        ),
        is_worker=is_worker,
        metrics_allow=settings.metrics_allow,
        metrics_token=settings.metrics_token,
        mcp=settings.mcp,
    )


def make_dispatcher(
    settings: Settings,
    secrets: Secrets,
    context: Context,
    management: Management,
    admission: Admission,
    budget: ByteBudget,
    outgoing: MailPreparer,
    http: CarrierHttp,
) -> Dispatcher:
    """Create the API and the dashboard, which share one byte budget with SMTP submission."""
    compat_routes = [route for adapter in ADAPTERS for route in adapter.routes]
    tools = PageTools(
        context=context,
        management=management,
        encrypt=secrets.cipher.encrypt,
        decrypt=secrets.cipher.decrypt,
        render_eml=outgoing.build_unsigned,
        api_routes=(*(route.name for route in (*ROUTES, *compat_routes) if route.scopes is not None), intake.ROUTE),
        provider=make_provider(settings, context.clock, http),
        read_budget=ReadBudget(ByteBudget(settings.body_memory_mb * MIB)),
        password_sign_in=settings.password_sign_in,
        smtp_listeners=tuple(address.rpartition(":")[2] for address in settings.submission()),
    )
    api = Api(context, management, admission, budget, ADAPTERS, tools.read_budget)
    return Dispatcher(
        api,
        Dashboard(tools, budget),
        settings.trusted_proxies,
        context.store.setup,
        cell=settings.cell,
        cell_host=urlsplit(settings.public_url).hostname or "" if settings.cell else "",
    )


def make_provider(settings: Settings, clock: Clock, http: CarrierHttp) -> Provider | None:
    """Return the identity provider for sign-in, or None if not configured."""
    if not settings.oidc_issuer:
        return None

    async def request(method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        try:
            response = await http.request(method, url, headers=headers, body=body, timeout_s=PROVIDER_S)
        except Unreachable as error:
            raise ProviderUnavailable(str(error)) from None
        except NoResponse:
            raise ProviderUnavailable("no response") from None
        return response.status, response.body

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
    return Provider(options, request, clock.now)


def served_calls(service: str) -> list[tuple[str, str]]:
    """Return (method, path) of every call that our compatibility API for `service` serves."""
    prefix = f"/compat/{service}"
    routes = [route for adapter in ADAPTERS if adapter.prefix == prefix for route in adapter.routes]
    return [(route.method, route.path.removeprefix(prefix)) for route in routes]


def shared_jobs(context: Context, secrets: Secrets) -> dict[str, Loop]:
    """Return the background jobs that every process runs, by name."""
    store, state = context.store, context.state
    return {
        "wakeups": store.listen,
        "refresh": partial(refresh_shared_state, store),
        "clock": partial(watch_clock, store, context.clock),
        "imports": partial(import_suppressions, store),
        "secret": every(2.0, master_secret.secret_refresher(store, secrets.use_digest)),
        # These two jobs keep their data in memory while the database is unavailable.
        "key uses": every(60.0, partial(store.requests.write_key_uses, state.last_used), run_at_exit=True),
        "request log": every(1.0, partial(state.request_log.write_periodically, store.requests), run_at_exit=True),
    }


def worker_jobs(
    settings: Settings, context: Context, carriers: Carriers, domains: Domains, notice_sender: NoticeSender
) -> dict[str, Loop]:
    """Return the background jobs of worker processes, by name."""
    store = context.store
    return {
        "test clocks": partial(advance_test_clocks, store),
        "search index": partial(build_search_index, store),
        "early reports": every(0.25, partial(apply_early_reports, store)),
        "carriers": every(1.0, lambda: carriers.sync(store.setup.current.carriers)),
        "codes": every(1.0, partial(send_due_codes, context)),
        "delays": every(1.0, store.delays.publish_due),
        "expiry": every(1.0, store.expiry.fail_expired),
        "approvals": every(1.0, store.approvals.fail_expired),
        "notices": every(1.0, notice_sender.send_due),
        "domain watch": every(2.5, domains.check_watched),  # checks recently changed domains
        "incomplete texts": every(5.0, store.inbound_texts.report_incomplete),
        "reclaim": every(5.0, partial(reclaim_dead_claims, store)),
        # Each run increases and records a counter: a restored copy is detected if it was made before the last run.
        "restore check": every(10.0, partial(pause_if_restored, store, settings.data, sqlite_path(settings))),
        # Links audit entries that a previous version wrote without a link.
        "audit": every(60.0, partial(audit_chain.link_audit_entries, store, store.clock)),
        "audit head": every(60.0, audit_chain.chain_head_logger(store)),
        "ledger": every(60.0, ledger.ledger_comparison(store)),
        "reputation": every(60.0, partial(update_reputations, store)),
        "retention": every(60.0, store.maintenance.purge),
        "team deletion": every(60.0, store.team_deletion.delete_due),
        "domain checks": every(600.0, domains.check_due),
        "key rotation": every(600.0, domains.rotate_due),
        "SQLite WAL": every(600.0, partial(warn_if_wal_grows, partial(wal_fault, settings), WAL_FIX)),
        "attachment cleanup": every(3600.0, store.attachments.delete_unused),
    }


def make_inbound_server(
    settings: Settings, secrets: Secrets, store: Store, clock: Clock, tls: GetTlsContext
) -> SmtpServer:
    """Create the SMTP server for bounces, complaints, reports and inbound mail of teams."""
    incoming = InboundMailHandler(
        secrets.envelope_key,
        clock.now,
        partial(recipient_address, store),
        partial(store_recipient_report, store),
        signing_keys(store, secrets.cipher),
        lambda domain: domain == mail_name(settings, store).lower() or store.setup.current.has_domain(domain),
        partial(unsubscribe_by_mail, store),
        partial(count_complaint, store, secrets.envelope_key),
        mailbox=InboundMailService(store, secrets.envelope_key, clock.new_id),
        folder=settings.data,
        query_dns=dns_query_function("{}:{}".format(*settings.resolver) if settings.resolver else None),
        report_mailbox=AggregateReportService(store, partial(mail_name, settings, store)),
    )
    return create_inbound_server(mail_name(settings, store), tls, incoming)


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


def make_carrier(record: records.CarrierRecord, dependencies: CarrierDependencies) -> Carrier:
    try:
        options = decrypt_options(
            record.options, lambda text, field: dependencies.cipher.decrypt(text, f"carrier/{record.id}/{field}")
        )
    except DecryptionError:
        return InvalidCarrier(CARRIER_SECRETS_LOST)
    make = CARRIER_FACTORIES[record.channel, record.kind]
    return make(msgspec.structs.replace(record, options=options), dependencies)


def make_carrier_dependencies(
    settings: Settings, secrets: Secrets, store: Store, clock: Clock, domains: Domains
) -> CarrierDependencies:
    return CarrierDependencies(
        step_ms=settings.simulator_step_ms,
        helo=normalize_domain(mail_name(settings, store)),
        outgoing=MailPreparer(
            ensure_keys=domains.ensure_keys,
            signing_keys=signing_keys(store, secrets.cipher),
            fetch_blob=partial(fetch_attachment, store),
            open_blob=store.local_files.open,
            envelope_key=secrets.envelope_key,
            entropy=clock.random_bytes,
            now=clock.now,
            receives_complaints=bool(settings.bounce_listen),
        ),
        cipher=secrets.cipher,
        http=CarrierHttp(),
        checked_http=CarrierHttp(
            resolver=CheckedAddresses(partial(resolve_checked, SsrfGuard(settings.webhook_allow_private)))
        ),
        report=partial(store_carrier_reports, store),
        receive_texts=partial(store_inbound_texts, store),
        base_url=settings.base_url,
        mailbox=InboundMailService(store, secrets.envelope_key, clock.new_id),
        exchange_rates=store.provider_states.exchange,
        now=clock.now,
    )


async def resolve_checked(guard: SsrfGuard, host: str) -> Sequence[str]:
    """Return the addresses of a host; raise OSError if the name does not resolve or connecting is forbidden (SSRF)."""
    try:
        return (await guard.check(f"https://{host}/")).addresses
    except (TargetDenied, HostUnresolved) as error:
        raise OSError(str(error)) from None


async def fetch_attachment(store: Store, hash_: str) -> None:
    """Fetch an attachment from the object store to the local files.

    Failures raise NotReady, so that an unavailable or lost attachment does not open the carrier's circuit.
    """
    try:
        await store.attachments.fetch(hash_)
    except FileNotFoundError as error:
        log.error("attachment missing from the object store", hash=hash_)
        raise NotReady("an attachment is missing from the object store") from error
    except StoreUnavailable as error:
        log.warning("cannot read an attachment", error=str(error))
        raise NotReady("an attachment cannot be read now") from error


def make_domains(
    settings: Settings, secrets: Secrets, store: Store, clock: Clock, resolver: tuple[str, int] | None = None
) -> Domains:
    def make_key(algorithm: Any) -> tuple[bytes, str]:
        private = dkim.generate_key(algorithm)
        return private, dkim.public_record(private)

    return Domains(
        store,
        clock,
        encrypt=secrets.cipher.encrypt,
        make_key=make_key,
        check_records=lambda records: dns_check.check_records(records, resolver or settings.resolver),
        find_zone=lambda domain: dns_check.zone_of(domain, resolver or settings.resolver),
        find_published_ttl=lambda records: dns_check.published_ttl(records, resolver or settings.resolver),
        ownership_key=secrets.ownership_key,
        mail_host=urlsplit(settings.base_url).hostname or "localhost",
    )


def make_webhooks(settings: Settings, secrets: Secrets, store: Store, clock: Clock) -> Webhooks:
    return Webhooks(
        store,
        clock,
        vault=secrets.cipher,
        make_secret=lambda: signature.make_secret(clock.random_bytes(signature.ENTROPY_MIN)),
        make_pair=make_key_pair,
        find_refusal=make_url_check(settings, own_url=settings.base_url),
    )


def make_key_pair() -> tuple[bytes, str]:
    """Return a new private key as PEM, and its public key in base64."""
    private = dkim.generate_key("rsa-sha256")
    return private, dkim.public_record(private).partition("p=")[2]


def make_chats(settings: Settings, secrets: Secrets, store: Store, clock: Clock) -> ChatHooks:
    return ChatHooks(store, clock, vault=secrets.cipher, find_refusal=make_url_check(settings))


def make_url_check(settings: Settings, own_url: str = "") -> FindRefusal:
    """Return a check that a URL may be called by a webhook or chat hook."""
    guard = SsrfGuard(settings.webhook_allow_private, own_base_url=own_url)

    async def find_refusal(url: str) -> str | None:
        try:
            await guard.check(url)
        except TargetDenied as error:
            return str(error)
        except HostUnresolved:
            pass  # DNS may resolve later; every attempt checks again
        return None

    return find_refusal


def webhook_secrets(cipher: Cipher, hook: records.Webhook, now: int) -> WebhookSecrets:
    """Return the signing secrets of a webhook, including the previous secret during a rotation.

    Raises ValueError with the reason if the secrets cannot be decrypted.
    """
    try:
        secrets = [cipher.decrypt(hook.secret, f"webhook/{hook.id}").decode()]
        login = cipher.decrypt(hook.login, f"webhook/{hook.id}/login").decode() if hook.login else ""
        key = cipher.decrypt(hook.private_key, f"webhook/{hook.id}/key").decode() if hook.private_key else ""
    except DecryptionError:
        raise ValueError(WEBHOOK_SECRET_LOST) from None
    if hook.old_secret and hook.old_until > now:
        with suppress(DecryptionError):
            secrets.append(cipher.decrypt(hook.old_secret, f"webhook/{hook.id}/old").decode())
    return WebhookSecrets(secrets=secrets, login=login, key=key)


def signing_keys(store: Store, cipher: Cipher) -> Callable[[str], tuple[dkim.SigningKey, ...]]:
    """Return a function that returns the active DKIM keys of a domain.

    The function returns no keys if no team has the domain or the domain has no keys yet, and raises NotReady if the
    keys cannot be decrypted.
    """
    setup, keys_by_domain = store.setup.current, dict[str, tuple[dkim.SigningKey, ...]]()

    def decrypt_key(key: records.DkimKey) -> dkim.SigningKey:
        try:
            private = cipher.decrypt(key.sealed, f"dkim/{key.id}")
        except DecryptionError:
            raise NotReady(DKIM_KEYS_LOST) from None
        return dkim.SigningKey(selector=key.selector, algorithm=key.algorithm, private=private)

    def keys_of(name: str) -> tuple[dkim.SigningKey, ...]:
        # Cached until the setup changes: decrypting two keys takes 75 µs per mail.
        nonlocal setup
        if setup is not store.setup.current:
            setup = store.setup.current
            keys_by_domain.clear()
        if name not in keys_by_domain:
            domain = setup.find_domain(name)
            keys = setup.dkim_keys(domain) if domain else []
            if not keys:  # do not cache: `name` can be any domain
                return ()
            keys_by_domain[name] = tuple(decrypt_key(key) for key in keys if key.state == "active")
        return keys_by_domain[name]

    return keys_of
