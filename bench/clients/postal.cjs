// Postal's own library for Node, which takes a host alone.
const Postal = require('@atech/postal');
const tell = require('./told.cjs');
const client = new Postal.Client(process.env.HOST, process.env.KEY);
const mail = (message) => {
  message.to('delivered@simulator.test');
  message.from('hello@acme.test');
  message.subject('Hi there!');
  message.plainBody('Hello world!');
  message.htmlBody('<p>Hello world!</p>');
  message.header('X-Order', '4711');
  message.attach('a.txt', 'text/plain', 'Hello');
  return message.send();
};
const sent = async () => Object.values((await mail(new Postal.SendMessage(client))).recipients())[0].id();

tell({
  'send message': () => mail(new Postal.SendMessage(client)),
  'send raw': () => {
    const raw = new Postal.SendRawMessage(client);
    raw.mailFrom('hello@acme.test');
    raw.rcptTo('delivered@simulator.test');
    raw.data('From: hello@acme.test\r\nTo: delivered@simulator.test\r\nSubject: Hi\r\n\r\nHello');
    return raw.send();
  },
  'messages/message': async () => client.makeRequest('messages', 'message', { id: await sent(), _expansions: true }),
  'messages/deliveries': async () => client.makeRequest('messages', 'deliveries', { id: await sent() }),
}, (error) => ({ status: error.code ? 200 : 0, message: error.code === 'NotFound' ? '' : error.message }));
