// A shop that mails receipts, and stops writing to addresses that bounce.
//   npm install   (builds the client beside it as well)
//   HELIOGRAPH_URL=… HELIOGRAPH_KEY=… HELIOGRAPH_FROM=… WEBHOOK_SECRET=whsec_… PORT=3000 npm start
import express from "express";
import { Heliograph, verifyWebhook } from "heliograph-client";

const heliograph = new Heliograph();
const unreachable = new Set();
const app = express();

app.post("/orders/:id", express.json(), async (request, response) => {
  const to = request.body.email;
  if (unreachable.has(to)) return response.status(409).json({ error: "This address bounced." });
  const mail = { from: process.env.HELIOGRAPH_FROM, to, subject: `Order ${request.params.id}`, text: "Thank you." };
  const { data, error } = await heliograph.emails.send(mail, { idempotencyKey: `order ${request.params.id}` });
  if (error) return response.status(502).json({ error: error.code });
  response.json({ mail: data.id });
});

app.post("/webhooks", express.raw({ type: "*/*" }), async (request, response) => {
  try {
    const event = await verifyWebhook(request.body, request.headers, process.env.WEBHOOK_SECRET);
    if (event.type === "email.bounced") unreachable.add(event.data.recipient);
    response.sendStatus(204);
  } catch (refused) {
    response.status(400).send(refused.message);
  }
});

const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => console.log(server.address().port));
