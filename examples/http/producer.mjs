// Publishes jobs: `node producer.mjs TOPIC COUNT`.
import { post } from "./client.mjs";

const [topic, count] = [process.argv[2], Number(process.argv[3])];
for (let job = 1; job <= count; job++) {
  // the caller's own name of the message: a repeated request adds nothing, if the topic has a window
  const message = { body: { job }, partition_key: `customer-${job % 3}`, dedup_key: `job-${job}` };
  const { refs } = await post(`/topics/${topic}/messages`, message);
  console.log(`published ${refs[0]}`);
}
