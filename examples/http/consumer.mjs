// Processes jobs, and ends after so many: `node consumer.mjs TOPIC COUNT`.
import { post } from "./client.mjs";

const [topic, count] = [process.argv[2], Number(process.argv[3])];
const processed = new Set(); // a message may come again: its ref stays the same
while (processed.size < count) {
  const { messages } = await post(`/topics/${topic}/receive`, { max_messages: 10, wait: 20 });
  const [done, failed] = [[], []];
  for (const message of messages) {
    try {
      console.log(`processed job ${JSON.parse(message.body).job}`);
      processed.add(message.ref);
      done.push(message.receipt);
    } catch (error) {
      failed.push({ receipt: message.receipt, delay: null, reason: String(error) });
    }
  }
  if (done.length) await post("/acks", { receipts: done });
  if (failed.length) await post("/nacks", { nacks: failed });
}
