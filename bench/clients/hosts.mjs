// Programs that have api.resend.com in their code: Auth.js and Payload, as their own packages call it.
import { createRequire } from 'node:module';
import Resend from '@auth/core/providers/resend';
import { resendAdapter } from '@payloadcms/email-resend';

const tell = createRequire(import.meta.url)('./told.cjs');
const apiKey = process.env.KEY;
const provider = { ...Resend({}), apiKey, from: 'Acme <hello@acme.test>' };
const payload = resendAdapter({ apiKey, defaultFromAddress: 'hello@acme.test', defaultFromName: 'Acme' })();
const sign = { identifier: 'delivered@simulator.test', provider, url: 'https://acme.test/in', theme: {} };
const mail = { to: 'delivered@simulator.test', subject: 'Hello', text: 'Hi', html: '<p>Hi</p>' };
const file = { filename: 'a.pdf', content: Buffer.from('%PDF-1.4'), contentType: 'application/pdf' };

tell({
  'Auth.js, sendVerificationRequest': async () => (await provider.sendVerificationRequest(sign)) ?? null,
  'Payload, sendEmail': () => payload.sendEmail(mail),
  'Payload, with a file and cc': () => payload.sendEmail({ ...mail, cc: ['cc@simulator.test'], attachments: [file] }),
}, (error) => ({ status: 400, message: String(error.message) }));
