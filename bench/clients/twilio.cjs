// Twilio's library for Node: all calls of messages and Verify, and some that belong to an account.
const twilio = require('twilio');
const tell = require('./told.cjs');
const client = twilio('AC0123456789', process.env.KEY);
client.verify.baseUrl = client.api.baseUrl = process.env.BASE;
const to = '+15005550006';
const content = { to, contentSid: 'tpl_sms', contentVariables: JSON.stringify({ parcel: '4711' }) };
const service = client.verify.v2.services('VA1');
const later = () => client.messages.create({ ...content, scheduleType: 'fixed', sendAt: new Date(Date.now() + 3600e3) });
const ended = async () => {
  const { sid } = await client.messages.create(content);
  for (let i = 0; i < 100; i++) {
    const { status } = await client.messages(sid).fetch();
    if (status === 'delivered') return sid;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error('it does not end');
};
const begun = () => service.verifications.create({ to, channel: 'sms' });

tell({
  'messages.create': () => client.messages.create(content),
  'messages.fetch': async () => client.messages((await client.messages.create(content)).sid).fetch(),
  'messages.list': () => client.messages.list({ limit: 3, pageSize: 2 }),
  'messages.page': () => client.messages.page({ pageSize: 2 }),
  'messages.update, cancel': async () => client.messages((await later()).sid).update({ status: 'canceled' }),
  'messages.update, redact': async () => client.messages(await ended()).update({ body: '' }),
  'messages.remove': async () => client.messages(await ended()).remove(),
  'messages.media.list': async () => client.messages(await ended()).media.list(),
  'messages.feedback.create': async () => client.messages(await ended()).feedback.create({ outcome: 'confirmed' }),
  'services.create': () => client.verify.v2.services.create({ friendlyName: 'Acme' }),
  'services.fetch': () => service.fetch(),
  'services.list': () => client.verify.v2.services.list(),
  'services.update': () => service.update({ friendlyName: 'Other' }),
  'services.remove': () => service.remove(),
  'verifications.create': begun,
  'verifications.fetch': async () => service.verifications((await begun()).sid).fetch(),
  'verifications.update': async () => service.verifications((await begun()).sid).update({ status: 'canceled' }),
  'verificationChecks.create': async () => (await begun()) && service.verificationChecks.create({ to, code: '000000' }),
  'verificationAttempts.list': () => client.verify.v2.verificationAttempts.list(),
  'verificationAttemptsSummary.fetch': () => client.verify.v2.verificationAttemptsSummary().fetch(),
  'rateLimits.list': () => service.rateLimits.list(),
  'messagingConfigurations.list': () => service.messagingConfigurations.list(),
  'webhooks.list': () => service.webhooks.list(),
  'entities.list': () => service.entities.list(),
  'accessTokens.create': () => service.accessTokens.create({ identity: 'me', factorType: 'push' }),
  'templates.list': () => client.verify.v2.templates.list(),
  'safelist.create': () => client.verify.v2.safelist.create({ phoneNumber: to }),
  'forms.fetch': () => client.verify.v2.forms('form-push').fetch(),
  'accounts.fetch': () => client.api.v2010.accounts('AC0123456789').fetch(),
  'balance.fetch': () => client.balance.fetch(),
  'incomingPhoneNumbers.list': () => client.incomingPhoneNumbers.list(),
  'calls.create': () => client.calls.create({ to, from: to, url: 'http://127.0.0.1/' }),
  'usage.records.list': () => client.usage.records.list(),
}, (error) => ({ status: error.status, message: error.code ? error.message : '' }));
