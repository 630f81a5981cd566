// An SMSC made of the npm package `smpp`: tells what it reads as lines of JSON, and sends a receipt for each message.
const smpp = require('smpp');

const tell = (event) => console.log(JSON.stringify(event));
const textOf = (read) => {
  const { message, udh } = read && read.message !== undefined ? read : { message: read };
  return { text: message, udh: udh ? udh.map((one) => one.toString('hex')) : null };
};

const server = smpp.createServer((session) => {
  session.on('error', (error) => tell({ error: String(error) }));
  session.on('bind_transceiver', (pdu) => {
    const good = pdu.system_id === 'acme' && pdu.password === 's3cret-pw';
    tell({ bind: good, version: pdu.interface_version });
    session.send(pdu.response(good ? { system_id: 'node' } : { command_status: smpp.ESME_RINVPASWD }));
    if (good) session.enquire_link((answer) => tell({ alive: answer.command }));
  });
  let issued = 0;
  session.on('submit_sm', (pdu) => {
    const id = `node-${++issued}`;
    tell({
      from: [pdu.source_addr_ton, pdu.source_addr_npi, pdu.source_addr],
      to: [pdu.dest_addr_ton, pdu.dest_addr_npi, pdu.destination_addr],
      coding: pdu.data_coding,
      registered: pdu.registered_delivery,
      ...textOf(pdu.message_payload === undefined ? pdu.short_message : pdu.message_payload),
    });
    if (process.argv[2] === 'unbind' && issued === 1) {
      // Unbinds before it answers, and closes when the unbind is answered.
      session.unbind((answer) => {
        tell({ unbound: answer.command });
        session.close();
      });
      setTimeout(() => session.send(pdu.response({ message_id: id })), 50);
      return;
    }
    session.send(pdu.response({ message_id: id }));
    session.deliver_sm({
      source_addr: pdu.destination_addr,
      destination_addr: pdu.source_addr,
      esm_class: 4,
      short_message: `id:${id} sub:001 dlvrd:001 submit date:2611150930 done date:2611150931 stat:DELIVRD err:000 text:`,
      receipted_message_id: id,
      message_state: 2,
    }, (answer) => tell({ receipt: answer.command_status }));
  });
  session.on('enquire_link', (pdu) => session.send(pdu.response()));
  session.on('unbind', (pdu) => {
    tell({ unbind: true });
    session.send(pdu.response());
    session.close();
  });
});
server.listen(0, '127.0.0.1', () => tell({ port: server.address().port }));
