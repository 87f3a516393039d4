/** Follow topics, and print what comes, a line of JSON each: URL, token, positions as JSON. */

import { FeedClient } from "../fairbox-feeds.ts";

const [url = "", token = "", positions = "{}"] = process.argv.slice(2);
new FeedClient({
  url,
  token,
  positions: JSON.parse(positions),
  onUpdate: (update) => console.log(JSON.stringify(update)),
});
