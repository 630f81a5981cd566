// A program as people have it for Resend: it sends a mail and waits until its webhook says what became of it.
import { createServer } from 'node:http';
import { Resend } from 'resend';

const resend = new Resend();
const unwrap = ({ data, error }) => {
  if (error) throw new Error(error.message);
  return data;
};
let sent;
const server = createServer(async (request, response) => {
  let payload = '';
  for await (const part of request) payload += part;
  response.end();
  const given = request.headers;
  const headers = { id: given['svix-id'], timestamp: given['svix-timestamp'], signature: given['svix-signature'] };
  const told = resend.webhooks.verify({ payload, headers, webhookSecret: hook.signing_secret });
  if (told.data.email_id !== (await sent).id) return;
  unwrap(await resend.webhooks.remove(hook.id));
  console.log(told.type);
  process.exit();
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const endpoint = `http://127.0.0.1:${server.address().port}/`;
const hook = unwrap(await resend.webhooks.create({ endpoint, events: ['email.delivered', 'email.opened'] }));
sent = resend.emails
  .send({ from: 'hello@acme.test', to: 'delivered@simulator.test', subject: 'Hello', html: '<p>Hello</p>' })
  .then(unwrap);
