// Client of Heliograph: no dependencies, fetch and WebCrypto alone (Node 20, Deno, Bun, browsers' workers).
import type { ErrorCode, Operations, WebhookEvent } from "./types.js";

export type * from "./types.js";
export { verifyWebhook, WebhookRefused } from "./webhook.js";

export interface Options {
  /** Where the service is. Default: the environment's HELIOGRAPH_URL. */
  url?: string;
  /** The API key, hk_…. Default: the environment's HELIOGRAPH_KEY. */
  key?: string;
  /** How often a request is tried again after its first time. Default: 2. */
  retries?: number;
  /** After how many milliseconds one try is given up. Default: 30,000. */
  timeout?: number;
  fetch?: typeof fetch;
}

export interface Asked {
  /** Makes a send safe to repeat. Default: one is made for each send, and its retries use it again. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

/** Why a request failed: the service's refusal, or `connection_failed` where there was no answer. */
export class HeliographError extends Error {
  override readonly name = "HeliographError";
  readonly code: ErrorCode | "connection_failed";
  readonly status: number;
  readonly param: string | null;
  readonly details: Record<string, unknown> | null;
  readonly requestId: string | null;
  readonly docUrl: string | null;

  constructor(status: number, body: Record<string, any>, cause?: unknown) {
    super(body["message"], { cause });
    this.code = body["code"];
    this.status = status;
    this.param = body["param"] ?? null;
    this.details = body["details"] ?? null;
    this.requestId = body["request_id"] ?? null;
    this.docUrl = body["doc_url"] ?? null;
  }
}

export type Result<T> =
  | { readonly data: T; readonly error: null; unwrap(): T }
  | { readonly data: null; readonly error: HeliographError; unwrap(): never };

type Operation = keyof Operations;
type Body<K extends Operation> = Operations[K] extends { body: infer B } ? B : undefined;
type Query<K extends Operation> = Operations[K] extends { query: infer Q } ? Q : {};
type Answer<K extends Operation> = Operations[K]["answer"];
type Listing = { [K in Operation]: Answer<K> extends { data: unknown[]; has_more: boolean } ? K : never }[Operation];
type Item<K extends Listing> = Answer<K>["data"][number];

const FIRST_WAIT = 500, LONGEST_WAIT = 8_000, PATIENCE = 120_000; // ms
const SENDS = /^POST \/v1\/(emails|sms|whatsapp|verify)(\/batch|\/\{id\}\/resend)?$/;

/** The first page when it is awaited; every record, page after page, when it is iterated. */
export class List<K extends Listing> implements PromiseLike<Result<Answer<K>>>, AsyncIterable<Item<K>> {
  constructor(private readonly page: (after?: string) => Promise<Result<Answer<K>>>, private readonly cursor: string) {}

  then<A, B>(done: (page: Result<Answer<K>>) => A | PromiseLike<A>, failed?: (error: unknown) => B | PromiseLike<B>) {
    return this.page().then(done, failed);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item<K>> {
    for (let after: string | undefined; ; ) {
      const page = (await this.page(after)).unwrap();
      yield* page.data;
      if (!page.has_more) return;
      after = (page.data.at(-1) as unknown as Record<string, string>)[this.cursor];
    }
  }
}

export class Heliograph {
  private readonly url: string;
  private readonly key: string;
  private readonly retries: number;
  private readonly timeout: number;
  private readonly fetch: typeof fetch;

  constructor(options: Options = {}) {
    const environment = (globalThis as any).process?.env ?? {};
    this.url = (options.url ?? environment.HELIOGRAPH_URL ?? "").replace(/\/+$/, "");
    this.key = options.key ?? environment.HELIOGRAPH_KEY ?? "";
    if (!this.url || !this.key) throw new TypeError("Give url and key, or set HELIOGRAPH_URL and HELIOGRAPH_KEY.");
    this.retries = options.retries ?? 2;
    this.timeout = options.timeout ?? 30_000;
    this.fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  readonly emails = {
    ...this.channel("emails"),
    send: (body: Body<"POST /v1/emails">, asked?: Asked) => this.ask("POST /v1/emails", { body, ...asked }),
    batch: (body: Body<"POST /v1/emails/batch">, asked?: Asked) => this.ask("POST /v1/emails/batch", { body, ...asked }),
    list: (query: Query<"GET /v1/emails"> = {}) => this.list("GET /v1/emails", query),
    get: (id: string) => this.ask("GET /v1/emails/{id}", { id }),
  };
  readonly sms = {
    ...this.channel("sms"),
    send: (body: Body<"POST /v1/sms">, asked?: Asked) => this.ask("POST /v1/sms", { body, ...asked }),
    batch: (body: Body<"POST /v1/sms/batch">, asked?: Asked) => this.ask("POST /v1/sms/batch", { body, ...asked }),
    list: (query: Query<"GET /v1/sms"> = {}) => this.list("GET /v1/sms", query),
    get: (id: string) => this.ask("GET /v1/sms/{id}", { id }),
  };
  readonly whatsapp = {
    ...this.channel("whatsapp"),
    send: (body: Body<"POST /v1/whatsapp">, asked?: Asked) => this.ask("POST /v1/whatsapp", { body, ...asked }),
    batch: (body: Body<"POST /v1/whatsapp/batch">, asked?: Asked) => this.ask("POST /v1/whatsapp/batch", { body, ...asked }),
    list: (query: Query<"GET /v1/whatsapp"> = {}) => this.list("GET /v1/whatsapp", query),
    get: (id: string) => this.ask("GET /v1/whatsapp/{id}", { id }),
  };
  readonly verify = {
    start: (body: Body<"POST /v1/verify">, asked?: Asked) => this.ask("POST /v1/verify", { body, ...asked }),
    check: (id: string, code: string) => this.ask("POST /v1/verify/{id}/check", { id, body: { code } }),
    resend: (id: string, asked?: Asked) => this.ask("POST /v1/verify/{id}/resend", { id, ...asked }),
    cancel: (id: string) => this.ask("POST /v1/verify/{id}/cancel", { id }),
    list: (query: Query<"GET /v1/verify"> = {}) => this.list("GET /v1/verify", query),
    get: (id: string) => this.ask("GET /v1/verify/{id}", { id }),
  };
  readonly batches = {
    get: (id: string) => this.ask("GET /v1/batches/{id}", { id }),
  };
  /** Drafts: what is approved stays in use until the draft is. */
  readonly templates = {
    create: (body: Body<"POST /v1/templates">) => this.ask("POST /v1/templates", { body }),
    list: (query: Query<"GET /v1/templates"> = {}) => this.list("GET /v1/templates", query),
    get: (id: string) => this.ask("GET /v1/templates/{id}", { id }),
    change: (id: string, body: Body<"PATCH /v1/templates/{id}">) => this.ask("PATCH /v1/templates/{id}", { id, body }),
    submit: (id: string) => this.ask("POST /v1/templates/{id}/submit", { id }),
    archive: (id: string) => this.ask("POST /v1/templates/{id}/archive", { id }),
    versions: (id: string, query: Query<"GET /v1/templates/{id}/versions"> = {}) => this.list("GET /v1/templates/{id}/versions", query, "version", id),
    render: (id: string, body: Body<"POST /v1/templates/{id}/render">) => this.ask("POST /v1/templates/{id}/render", { id, body }),
  };
  readonly layouts = {
    create: (body: Body<"POST /v1/layouts">) => this.ask("POST /v1/layouts", { body }),
    list: (query: Query<"GET /v1/layouts"> = {}) => this.list("GET /v1/layouts", query),
    get: (id: string) => this.ask("GET /v1/layouts/{id}", { id }),
    change: (id: string, body: Body<"PATCH /v1/layouts/{id}">) => this.ask("PATCH /v1/layouts/{id}", { id, body }),
    submit: (id: string) => this.ask("POST /v1/layouts/{id}/submit", { id }),
    archive: (id: string) => this.ask("POST /v1/layouts/{id}/archive", { id }),
    versions: (id: string, query: Query<"GET /v1/layouts/{id}/versions"> = {}) => this.list("GET /v1/layouts/{id}/versions", query, "version", id),
  };

  /** The test clock of a sandbox team: its answer comes when everything that became due is done, or after 30 s. */
  readonly testClock = {
    get: () => this.ask("GET /v1/test-clock", {}),
    advance: ({ days = 0, hours = 0, minutes = 0, seconds = 0 }: { days?: number; hours?: number; minutes?: number; seconds?: number }) =>
      this.ask("POST /v1/test-clock", { body: { advance_s: Math.round(((days * 24 + hours) * 60 + minutes) * 60 + seconds) }, longer: 30_000 }),
  };

  readonly suppressions = {
    add: (body: Body<"POST /v1/suppressions">) => this.ask("POST /v1/suppressions", { body }),
    list: (query: Query<"GET /v1/suppressions"> = {}) => this.list("GET /v1/suppressions", query, "email"),
    get: (email: string) => this.ask("GET /v1/suppressions/{email}", { email }),
    remove: (email: string) => this.ask("DELETE /v1/suppressions/{email}", { email }),
  };
  /** Phones that want no more texts; without `channel`, of both channels. */
  readonly optOuts = {
    add: (body: Body<"POST /v1/opt-outs">) => this.ask("POST /v1/opt-outs", { body }),
    list: (query: Query<"GET /v1/opt-outs"> = {}) => this.list("GET /v1/opt-outs", query),
    get: (phone: string, query: Query<"GET /v1/opt-outs/{phone}"> = {}) => this.ask("GET /v1/opt-outs/{phone}", { phone, query }),
    remove: (phone: string, query: Query<"DELETE /v1/opt-outs/{phone}"> = {}) => this.ask("DELETE /v1/opt-outs/{phone}", { phone, query }),
  };
  /** Mail that came in; `raw` and `attachment` give the octets. */
  readonly received = {
    list: (query: Query<"GET /v1/received"> = {}) => this.list("GET /v1/received", query),
    get: (id: string) => this.ask("GET /v1/received/{id}", { id }),
    raw: (id: string) => this.ask("GET /v1/received/{id}/raw", { id }),
    attachment: (id: string, attachment: string) => this.ask("GET /v1/received/{id}/attachments/{attachment}", { id, attachment }),
  };
  readonly domains = {
    add: (body: Body<"POST /v1/domains">) => this.ask("POST /v1/domains", { body }),
    list: () => this.ask("GET /v1/domains", {}),
    get: (id: string) => this.ask("GET /v1/domains/{id}", { id }),
    check: (id: string) => this.ask("POST /v1/domains/{id}/check", { id }),
    rotate: (id: string) => this.ask("POST /v1/domains/{id}/rotate", { id }),
    reports: (id: string, query: Query<"GET /v1/domains/{id}/reports"> = {}) => this.ask("GET /v1/domains/{id}/reports", { id, query }),
  };
  readonly keys = {
    create: (body: Body<"POST /v1/keys">) => this.ask("POST /v1/keys", { body }),
    list: (query: Query<"GET /v1/keys"> = {}) => this.list("GET /v1/keys", query),
    rotate: (id: string) => this.ask("POST /v1/keys/{id}/rotate", { id }),
    revoke: (id: string) => this.ask("DELETE /v1/keys/{id}", { id }),
  };
  readonly webhooks = {
    create: (body: Body<"POST /v1/webhooks">) => this.ask("POST /v1/webhooks", { body }),
    list: (query: Query<"GET /v1/webhooks"> = {}) => this.list("GET /v1/webhooks", query),
    get: (id: string) => this.ask("GET /v1/webhooks/{id}", { id }),
    change: (id: string, body: Body<"PATCH /v1/webhooks/{id}">) => this.ask("PATCH /v1/webhooks/{id}", { id, body }),
    remove: (id: string) => this.ask("DELETE /v1/webhooks/{id}", { id }),
    rotate: (id: string) => this.ask("POST /v1/webhooks/{id}/rotate", { id }),
    test: (id: string) => this.ask("POST /v1/webhooks/{id}/test", { id }),
    replay: (id: string, body: Body<"POST /v1/webhooks/{id}/replay">) => this.ask("POST /v1/webhooks/{id}/replay", { id, body }),
  };
  readonly inbox = {
    list: (query: Query<"GET /v1/inbox"> = {}) => this.ask("GET /v1/inbox", { query }),
    get: (id: string) => this.ask("GET /v1/inbox/{id}", { id }),
  };
  readonly events = {
    list: (query: Query<"GET /v1/events"> = {}) => this.list("GET /v1/events", query),
    follow: (after?: string, asked: { every?: number; signal?: AbortSignal } = {}) => this.follow(after, asked),
  };
  /** For platform keys. */
  readonly approvals = {
    list: (query: Query<"GET /v1/approvals"> = {}) => this.list("GET /v1/approvals", query),
    approve: (id: string, by: string) => this.ask("POST /v1/approvals/{id}/approve", { id, body: { by } }),
    reject: (id: string, by: string) => this.ask("POST /v1/approvals/{id}/reject", { id, body: { by } }),
  };
  /** For platform keys. */
  readonly audit = {
    list: (query: Query<"GET /v1/audit"> = {}) => this.list("GET /v1/audit", query),
  };
  me() {
    return this.ask("GET /v1/me", {});
  }

  private channel<C extends "emails" | "sms" | "whatsapp">(name: C) {
    return {
      reschedule: (id: string, scheduled_at: string) => this.ask(`PATCH /v1/${name}/{id}`, { id, body: { scheduled_at } } as any),
      cancel: (id: string) => this.ask(`POST /v1/${name}/{id}/cancel`, { id } as any),
    };
  }

  private list<K extends Listing>(operation: K, query: Query<K>, cursor = "id", id = ""): List<K> {
    const page = (after?: string) => this.ask(operation, { id, query: after ? { ...(query as {}), after } : query } as any);
    return new List<K>(page as any, cursor);
  }

  /** Every event from here on; keep the id of the last one that you dealt with, and begin after it the next time. */
  private async *follow(after: string | undefined, { every = 2_000, signal }: { every?: number; signal?: AbortSignal }): AsyncGenerator<WebhookEvent> {
    while (!signal?.aborted) {
      const page = (await this.ask("GET /v1/events", { query: { limit: 100, ...(after && { after }) }, signal })).unwrap();
      for (const event of page.data) {
        yield event as unknown as WebhookEvent;
        after = event.id;
      }
      if (!page.has_more) await sleep(every, signal);
    }
  }

  private async ask<K extends Operation>(
    operation: K,
    given: Asked & { id?: string; email?: string; phone?: string; attachment?: string; query?: Query<K>; longer?: number } & (undefined extends Body<K> ? { body?: undefined } : { body: Body<K> }),
  ): Promise<Result<Answer<K>>> {
    const [method, template] = operation.split(" ") as [string, string];
    const path = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(given[name as "id"] ?? ""));
    const query = new URLSearchParams(Object.entries(given.query ?? {}).flatMap(([name, value]) => (value == null ? [] : [[name, String(value)]])));
    const headers: Record<string, string> = { authorization: `Bearer ${this.key}`, accept: "application/json" };
    if (given.body !== undefined) headers["content-type"] = "application/json";
    if (SENDS.test(operation)) headers["idempotency-key"] = given.idempotencyKey ?? crypto.randomUUID();
    const init = { method, headers, body: given.body === undefined ? undefined : JSON.stringify(encoded(given.body)) };
    for (let tried = 0; ; tried++) {
      const { data, error, wait } = await this.once(`${this.url}${path}${query.size ? `?${query}` : ""}`, init, given.longer ?? 0, given.signal);
      if (!error) return { data, error: null, unwrap: () => data };
      const isSafe = error.status !== 0 || method !== "POST" || "idempotency-key" in headers; // no answer says nothing
      if (wait === null || !isSafe || tried >= this.retries || wait > PATIENCE || given.signal?.aborted) {
        return { data: null, error, unwrap: () => { throw error; } };
      }
      await sleep(wait || Math.min(FIRST_WAIT * 2 ** tried, LONGEST_WAIT) * (1 - Math.random() / 4), given.signal);
    }
  }

  /** One try; `wait`: null where another one would fail as well, else how long the service asks to wait, in ms. */
  private async once(url: string, init: RequestInit, longer: number, signal?: AbortSignal): Promise<{ data: any; error: HeliographError | null; wait: number | null }> {
    const late = AbortSignal.timeout(this.timeout + longer);
    let response: Response, body: any;
    try {
      response = await this.fetch(url, { ...init, signal: signal ? AbortSignal.any([signal, late]) : late, redirect: "error" });
      const isFile = response.headers.get("content-type") === "application/octet-stream";
      body = await (isFile ? response.arrayBuffer() : response.json());
    } catch (cause) {
      const message = `No answer from ${this.url}: ${cause instanceof Error ? cause.message : cause}`;
      return { data: null, error: new HeliographError(0, { code: "connection_failed", message }, cause), wait: 0 };
    }
    if (response.ok) return { data: body, error: null, wait: null };
    const failure = body?.error ?? { code: "internal_error", message: `The answer was ${response.status}.` };
    const again = response.headers.get("heliograph-should-retry") ?? String(response.status >= 500);
    const wait = Number(response.headers.get("retry-after")) * 1000 || 0;
    return { data: null, error: new HeliographError(response.status, failure), wait: again === "true" ? wait : null };
  }
}

/** For tests with a sandbox team: a `fetch` whose requests, or the first `times` of them, meet a bad day such as `status=503`. */
export function chaos(trouble: string, { times = Infinity, fetch = globalThis.fetch }: { times?: number; fetch?: typeof globalThis.fetch } = {}): typeof globalThis.fetch {
  return (input, init) => {
    const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : {}));
    if (times-- > 0) headers.set("X-Heliograph-Simulate", trouble);
    return fetch(input, { ...init, headers });
  };
}

/** Files as base64: their content may be given as octets, Node's Buffer included. */
function encoded(body: any): any {
  if (Array.isArray(body.messages)) return { ...body, messages: body.messages.map(encoded) };
  if (!Array.isArray(body.attachments)) return body;
  const file = (one: any) => (one.content instanceof Uint8Array ? { ...one, content: base64(one.content) } : one);
  return { ...body, attachments: body.attachments.map(file) };
}

function base64(octets: Uint8Array): string {
  let text = "";
  for (let at = 0; at < octets.length; at += 0x8000) text += String.fromCharCode(...octets.subarray(at, at + 0x8000));
  return btoa(text);
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((wake) => {
    const timer = setTimeout(wake, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); wake(); }, { once: true });
  });
}
