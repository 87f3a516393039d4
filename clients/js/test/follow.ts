/** Follow topics, and print what comes, as JSON lines: URL, token, positions, where to poll. */

import { FeedClient } from "../fairbox-feeds.ts";

const [url = "", token = "", positions = "{}", poll] = process.argv.slice(2);
new FeedClient({
  url,
  ...(poll && { poll }),
  token,
  positions: JSON.parse(positions),
  onUpdate: (update) => console.log(JSON.stringify(update)),
});
