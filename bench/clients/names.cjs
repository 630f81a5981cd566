// As lines of /etc/hosts would: these names are this machine.
const dns = require('node:dns');
const names = process.env.NAMES.split(',');
const { lookup } = dns;
dns.lookup = (host, ...rest) => lookup(names.includes(host) ? process.env.NAMES_AT : host, ...rest);
