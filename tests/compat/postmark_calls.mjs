// Every call of Postmark's own library for Node: one object of name → what came back, or what was refused.
import { ServerClient } from 'postmark';

const host = process.env.POSTMARK_URL.replace('http://', '');
const client = new ServerClient(process.env.POSTMARK_KEY, { useHttps: false, requestHost: host });
const known = JSON.parse(process.argv[2]);
const mail = { From: 'hello@acme.test', To: 'Ada <delivered@simulator.test>', Subject: 'Hello', TextBody: 'Hi', Tag: 'node' };
const welcome = { From: mail.From, To: mail.To, TemplateAlias: 'welcome', TemplateModel: { name: 'Ada' } };
const words = (name) => ({ Name: name, Subject: 'Hi {{name}}', TextBody: 'Hi {{name}}', HtmlBody: '<p>Hi {{name}}</p>' });
const hook = { Url: 'http://127.0.0.1:9/', MessageStream: 'outbound', Triggers: { Bounce: { Enabled: true } } };
const addresses = (name) => ({ Suppressions: [{ EmailAddress: `${name}@example.com` }] });
let number = 0;
const template = async () => (await client.createTemplate(words(`Node ${++number}`))).TemplateId;
const webhook = async () => (await client.createWebhook(hook)).ID;

const calls = {
  sendEmail: () => client.sendEmail(mail),
  sendEmailBatch: () => client.sendEmailBatch([mail, mail]),
  sendEmailWithTemplate: () => client.sendEmailWithTemplate(welcome),
  sendEmailBatchWithTemplates: () => client.sendEmailBatchWithTemplates([welcome]),
  sendBulkEmail: () => client.sendBulkEmail({ From: mail.From, Subject: 'Hi', TextBody: 'Hi', Messages: [{ To: mail.To }] }),
  getBulkEmailStatus: () => client.getBulkEmailStatus('1'),
  getDeliveryStatistics: () => client.getDeliveryStatistics(),
  getBounces: () => client.getBounces({ count: 10, messageID: known.bounced }),
  getBounce: () => client.getBounce(known.bounce),
  getBounceDump: () => client.getBounceDump(known.bounce),
  activateBounce: () => client.activateBounce(known.bounce),
  getTemplates: () => client.getTemplates(),
  getTemplate: () => client.getTemplate('welcome'),
  createTemplate: () => client.createTemplate({ ...words('Node'), Alias: 'node-welcome' }),
  editTemplate: async () => client.editTemplate(await template(), { Subject: 'Hello {{name}}' }),
  deleteTemplate: async () => client.deleteTemplate(await template()),
  validateTemplate: () => client.validateTemplate({ ...words('x'), TestRenderModel: { name: 'Ada' } }),
  getServer: () => client.getServer(),
  editServer: () => client.editServer({ Name: 'Other' }),
  getOutboundMessages: () => client.getOutboundMessages({ count: 2, offset: 0, recipient: 'bounced@simulator.test' }),
  getOutboundMessageDetails: () => client.getOutboundMessageDetails(known.bounced),
  getOutboundMessageDump: () => client.getOutboundMessageDump(known.bounced),
  getInboundMessages: () => client.getInboundMessages(),
  getInboundMessageDetails: () => client.getInboundMessageDetails('1'),
  bypassBlockedInboundMessage: () => client.bypassBlockedInboundMessage('1'),
  retryInboundHookForMessage: () => client.retryInboundHookForMessage('1'),
  getMessageOpens: () => client.getMessageOpens(),
  getMessageOpensForSingleMessage: () => client.getMessageOpensForSingleMessage(known.bounced),
  getMessageClicks: () => client.getMessageClicks(),
  getMessageClicksForSingleMessage: () => client.getMessageClicksForSingleMessage(known.bounced),
  getOutboundOverview: () => client.getOutboundOverview(),
  getSentCounts: () => client.getSentCounts(),
  getBounceCounts: () => client.getBounceCounts(),
  getSpamComplaintsCounts: () => client.getSpamComplaintsCounts(),
  getTrackedEmailCounts: () => client.getTrackedEmailCounts(),
  getEmailOpenCounts: () => client.getEmailOpenCounts(),
  getEmailOpenPlatformUsage: () => client.getEmailOpenPlatformUsage(),
  getEmailOpenClientUsage: () => client.getEmailOpenClientUsage(),
  getEmailOpenReadTimes: () => client.getEmailOpenReadTimes(),
  getClickCounts: () => client.getClickCounts(),
  getClickBrowserUsage: () => client.getClickBrowserUsage(),
  getClickPlatformUsage: () => client.getClickPlatformUsage(),
  getClickLocation: () => client.getClickLocation(),
  createInboundRuleTrigger: () => client.createInboundRuleTrigger({ Rule: 'a@example.com' }),
  deleteInboundRuleTrigger: () => client.deleteInboundRuleTrigger(1),
  getInboundRuleTriggers: () => client.getInboundRuleTriggers(),
  getWebhooks: () => client.getWebhooks(),
  getWebhook: async () => client.getWebhook(await webhook()),
  createWebhook: () => client.createWebhook(hook),
  editWebhook: async () => client.editWebhook(await webhook(), { Triggers: { Delivery: { Enabled: true } } }),
  deleteWebhook: async () => client.deleteWebhook(await webhook()),
  getMessageStreams: () => client.getMessageStreams(),
  getMessageStream: () => client.getMessageStream('outbound'),
  editMessageStream: () => client.editMessageStream('outbound', { Name: 'Other' }),
  createMessageStream: () => client.createMessageStream({ ID: 'news', Name: 'News', MessageStreamType: 'Broadcasts' }),
  archiveMessageStream: () => client.archiveMessageStream('outbound'),
  unarchiveMessageStream: () => client.unarchiveMessageStream('outbound'),
  getSuppressions: () => client.getSuppressions('outbound'),
  createSuppressions: () => client.createSuppressions('outbound', addresses('postmark')),
  deleteSuppressions: () => client.deleteSuppressions('outbound', addresses('postmark')),
};

const told = {};
for (const [name, call] of Object.entries(calls)) {
  try {
    told[name] = { answer: await call() };
  } catch (error) {
    told[name] = { refused: { code: error.code, status: error.statusCode, message: error.message } };
  }
}
console.log(JSON.stringify(told));
