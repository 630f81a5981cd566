// Webhooks as https://www.standardwebhooks.com signs them.
import type { WebhookEvent } from "./types.js";

const TOLERANCE = 300; // seconds
const PREFIX = "whsec_";

export class WebhookRefused extends Error {
  override readonly name = "WebhookRefused";
}

/** The event, if its body was signed with the secret within the last five minutes; else WebhookRefused is thrown. */
export async function verifyWebhook(
  body: string | Uint8Array,
  headers: Headers | Record<string, string | string[] | undefined>,
  secret: string,
  now: number = Date.now() / 1000,
): Promise<WebhookEvent> {
  const read = (name: string): string => {
    const value = headers instanceof Headers ? headers.get(name) : headers[name];
    if (typeof value !== "string") throw new WebhookRefused(`There is no header ${name}.`);
    return value;
  };
  const id = read("webhook-id"), time = read("webhook-timestamp"), signatures = read("webhook-signature");
  if (!/^\d{1,12}$/.test(time) || Math.abs(now - Number(time)) > TOLERANCE) {
    throw new WebhookRefused("It was signed at another time. Is the clock right?");
  }
  const text = new TextEncoder();
  const raw = typeof body === "string" ? text.encode(body) : body;
  const signed = new Uint8Array([...text.encode(`${id}.${time}.`), ...raw]);
  const key = await crypto.subtle.importKey("raw", bytes(secret.replace(PREFIX, "")), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  for (const one of signatures.split(" ")) {
    const [version, signature] = one.split(",", 2);
    if (version !== "v1" || !signature) continue;
    if (await crypto.subtle.verify("HMAC", key, bytes(signature), signed)) return JSON.parse(new TextDecoder().decode(raw));
  }
  throw new WebhookRefused("No signature was made with this secret.");
}

function bytes(base64: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  } catch {
    throw new WebhookRefused("This is not base64.");
  }
}
