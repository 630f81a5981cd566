// Every call of resend_calls.py by Resend's library for Node: one object of name → what came back.
import { Resend } from 'resend';

const resend = new Resend(); // RESEND_BASE_URL and RESEND_API_KEY
const known = JSON.parse(process.argv[2]);
const hello = {
  from: 'Acme <hello@acme.test>',
  to: 'Ada Lovelace <delivered@simulator.test>',
  replyTo: ['One <one@acme.test>', 'two@acme.test'],
  subject: 'Hello',
  html: '<p>Hello</p>',
  tags: [{ name: 'kind', value: 'receipt' }],
  attachments: [{ filename: 'a.pdf', content: Buffer.from('%PDF-1.4') }],
};
let number = 0;
const made = async (answer) => {
  const { data, error } = await answer;
  if (error) throw new Error(JSON.stringify(error));
  return data.id;
};
const scheduled = () => made(resend.emails.send({ ...hello, scheduledAt: 'in 2 hours' }));
const domain = () => made(resend.domains.create({ name: `node${++number}.test` }));
const key = () => made(resend.apiKeys.create({ name: `node ${++number}` }));
const hook = () => made(resend.webhooks.create({ endpoint: 'http://127.0.0.1:9/', events: ['email.sent'] }));
const draft = () => made(resend.templates.create({ name: `Node ${++number}`, subject: 'Hi', html: '<p>{{{NAME}}}</p>' }));
const suppressed = async () => {
  const email = `node${++number}@example.com`;
  await made(resend.suppressions.add({ email }));
  return email;
};
const event = { webhookId: known.webhook, eventId: known.event };

const calls = {
  'emails.send': () => resend.emails.send(hello),
  'batch.send': () => resend.batch.send([hello, hello]),
  'emails.get': () => resend.emails.get(known.email),
  'emails.list': () => resend.emails.list({ limit: 2, after: known.email }),
  'emails.update': async () => resend.emails.update({ id: await scheduled(), scheduledAt: 'in 3 hours' }),
  'emails.cancel': async () => resend.emails.cancel(await scheduled()),
  'emails.attachments.list': () => resend.emails.attachments.list({ emailId: known.email }),
  'emails.attachments.get': () => resend.emails.attachments.get({ emailId: known.email, id: '1' }),
  'emails.receiving.list': () => resend.emails.receiving.list({ limit: 2 }),
  'domains.create': () => resend.domains.create({ name: `node${++number}.test` }),
  'domains.get': () => resend.domains.get('dom_acme'),
  'domains.list': () => resend.domains.list(),
  'domains.update': () => resend.domains.update({ id: 'dom_acme', clickTracking: false }),
  'domains.verify': async () => resend.domains.verify(await domain()),
  'domains.remove': async () => resend.domains.remove(await domain()),
  'webhooks.create': () => resend.webhooks.create({ endpoint: 'http://127.0.0.1:9/', events: ['email.sent'] }),
  'webhooks.get': () => resend.webhooks.get(known.webhook),
  'webhooks.list': () => resend.webhooks.list(),
  'webhooks.update': async () => resend.webhooks.update(await hook(), { status: 'disabled' }),
  'webhooks.remove': async () => resend.webhooks.remove(await hook()),
  'webhooks.rotateSigningSecret': async () => resend.webhooks.rotateSigningSecret(await hook()),
  'webhooks.events.list': () => resend.webhooks.events.list({ webhookId: known.webhook }),
  'webhooks.events.get': () => resend.webhooks.events.get(event),
  'webhooks.events.attempts.list': () => resend.webhooks.events.attempts.list(event),
  'webhooks.events.replay': () => resend.webhooks.events.replay(event),
  'suppressions.add': () => resend.suppressions.add({ email: `node${++number}@example.com` }),
  'suppressions.get': async () => resend.suppressions.get(await suppressed()),
  'suppressions.list': () => resend.suppressions.list({ limit: 1 }),
  'suppressions.remove': async () => resend.suppressions.remove(await suppressed()),
  'suppressions.batch.add': () => resend.suppressions.batch.add({ emails: ['c@gone.test'] }),
  'suppressions.batch.remove': async () => resend.suppressions.batch.remove({ emails: [await suppressed()] }),
  'apiKeys.create': () => resend.apiKeys.create({ name: `node ${++number}` }),
  'apiKeys.list': () => resend.apiKeys.list(),
  'apiKeys.remove': async () => resend.apiKeys.remove(await key()),
  'templates.create': () => resend.templates.create({ name: `Node ${++number}`, subject: 'Hi', html: '<p>Hi</p>' }),
  'templates.get': async () => resend.templates.get(await draft()),
  'templates.list': () => resend.templates.list({ limit: 1 }),
  'templates.update': async () => resend.templates.update(await draft(), { html: '<p>Hello</p>' }),
  'templates.publish': async () => resend.templates.publish(await draft()),
  'templates.duplicate': async () => resend.templates.duplicate(await draft()),
  'templates.remove': async () => resend.templates.remove(await draft()),
  'logs.list': () => resend.logs.list({ limit: 1 }),
  'logs.get': async () => resend.logs.get((await resend.logs.list({ limit: 1 })).data.data[0].id),
  'emails.share': () => resend.emails.share(known.email, { expiresIn: '48h' }),
  'emails.metrics': () => resend.emails.metrics(),
  'domains.claims.create': () => resend.domains.claims.create({ name: 'acme.test' }),
  'apiKeys.update': async () => resend.apiKeys.update(await key(), { name: 'other' }),
  'audiences.list': () => resend.audiences.list(),
  'contacts.list': () => resend.contacts.list(),
  'contactProperties.list': () => resend.contactProperties.list(),
  'segments.list': () => resend.segments.list(),
  'topics.list': () => resend.topics.list(),
  'broadcasts.list': () => resend.broadcasts.list(),
  'automations.list': () => resend.automations.list(),
  'events.list': () => resend.events.list(),
  'inboxes.list': () => resend.inboxes.list(),
  'oauthGrants.list': () => resend.oauthGrants.list(),
  'usage.get': () => resend.usage.get(),
};

const told = {};
for (const [name, call] of Object.entries(calls)) {
  told[name] = await (async () => call())().catch((error) => ({ error: { message: `${error}` } }));
}
console.log(JSON.stringify(told));
