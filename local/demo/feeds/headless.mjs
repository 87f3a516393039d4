/** The panes without a page: the address of the demo's site is the argument. */

import { FeedClient } from "../../../clients/js/fairbox-feeds.ts";
import { run } from "./panes.mjs";

await run({ FeedClient, site: process.argv[2], show() {}, conduct() {} });
