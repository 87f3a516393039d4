// Receives webhooks of Fairbox: `node receiver.mjs PORT SECRET`.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const [port, secret] = [Number(process.argv[2]), process.argv[3]];
const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
const seen = new Set(); // in production a table: a message may come again, to any process

function isGenuine(headers, body, now) {
  const sent = headers["webhook-timestamp"] ?? "";
  if (!/^[0-9]{1,15}$/.test(sent) || Math.abs(now / 1000 - Number(sent)) > 300) return false;

  const signed = Buffer.concat([Buffer.from(`${headers["webhook-id"] ?? ""}.${sent}.`), body]);
  const expected = Buffer.from(`v1,${createHmac("sha256", key).update(signed).digest("base64")}`);
  return (headers["webhook-signature"] ?? "")
    .split(" ")
    .map((one) => Buffer.from(one))
    .some((one) => one.length === expected.length && timingSafeEqual(one, expected));
}

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  if (!isGenuine(request.headers, body, Date.now())) {
    response.writeHead(401).end();
    return;
  }
  if (!seen.has(request.headers["webhook-id"])) {
    console.log(`received ${body}`);
    seen.add(request.headers["webhook-id"]);
  }
  response.writeHead(204).end();
});
server.listen(port, "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
