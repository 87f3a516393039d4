/** The panes of the demo, for its page and for Node: each follows its topics, and counts. */

export class Pane {
  received = 0;
  lost = 0;
  inbox = 0;
  /** The last count of each kind of event. */
  counts = {};
  stopped = true;
  /** What the producer has done in all; null: it is still at work. */
  end = null;
  #client;
  #positions;
  #told = true;
  #telling = false;

  /** `show(pane, update)` is called for each update, and without one when it stops or reads. */
  constructor(name, { FeedClient, settings, show }) {
    Object.assign(this, { name, FeedClient, settings, show });
    this.#positions = settings.panes[name];
  }

  /** Connect, and go on behind the last message that was seen. */
  read() {
    if (!this.stopped) return;
    this.stopped = false;
    this.#client = follow(this.FeedClient, this.settings, this.name, this.#positions, (update) =>
      this.#take(update),
    );
    this.changed();
  }

  stop() {
    if (this.stopped) return;
    this.stopped = true;
    this.#positions = this.#client.positions;
    this.#client.close();
    this.changed();
  }

  get counted() {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  /** Whether it has seen all that the producer has done. */
  get level() {
    const { name, end, received, lost, inbox, counted } = this;
    if (!end || inbox < end.accepted[name]) return false;
    return received + lost >= end.published && counted >= end.published;
  }

  #take(update) {
    const [feed, key] = update.topic.split("/");
    if (feed === "tape") {
      this.received += update.messages.length;
      this.lost += update.lost;
    } else if (feed === "inbox") this.inbox += update.messages.length;
    else this.counts[key] = update.messages.at(-1).body;
    this.changed(update);
  }

  /** Show what has changed, and tell the demo what was seen, one request at a time. */
  async changed(update) {
    if (this.level) this.#client.close();
    this.show(this, update);
    this.#told = false;
    if (this.#telling) return;
    this.#telling = true; // for good when it is level: the demo ends then
    while (!this.#told) {
      this.#told = true;
      const { name, stopped, received, lost, inbox, counted, level } = this;
      const body = JSON.stringify({ name, stopped, received, lost, inbox, counted });
      await fetch(`${this.settings.site}/seen`, { method: "POST", body });
      if (level) return;
    }
    this.#telling = false;
  }
}

function follow(FeedClient, { site, url, poll }, name, positions, onUpdate) {
  const token = async () => (await fetch(`${site}/token?pane=${name}`)).text();
  return new FeedClient({ url, poll, token, positions, onUpdate });
}

/** Read in both panes; `conduct(stage)` is called with what the producer has done so far. */
export async function run({ FeedClient, site, show, conduct }) {
  const settings = { site, ...(await (await fetch(`${site}/settings`)).json()) };
  const panes = Object.keys(settings.panes).map(
    (name) => new Pane(name, { FeedClient, settings, show }),
  );
  for (const pane of panes) pane.read();
  const conductor = follow(FeedClient, settings, "right", { "stage/now": null }, ({ messages }) => {
    const stage = messages.at(-1).body;
    conduct(stage, settings);
    if (stage.stopped) panes.at(-1).stop();
    else panes.at(-1).read();
    if (!stage.done) return;
    conductor.close();
    for (const pane of panes) {
      pane.end = stage;
      pane.changed();
    }
  });
  return panes;
}
