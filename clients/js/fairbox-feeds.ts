/** A client of Fairbox's feeds over a WebSocket or polls, for browsers and Node 22 or newer. */

export type Kind = "snapshot" | "ring" | "private";

export interface FeedMessage {
  /** Counts the topic's messages from 1. */
  readonly number: number;
  readonly id: string;
  /** The JSON value; a `Uint8Array` where the content type is not JSON. */
  readonly body: unknown;
}

/** News of one topic: its next messages, and how many the client will never get. */
export interface FeedUpdate {
  /** `feed/key`. */
  readonly topic: string;
  readonly kind: Kind;
  /** In the order of their numbers, each once. */
  readonly messages: readonly FeedMessage[];
  /** Messages up to `position` that are gone; of a snapshot, newer ones took their place. */
  readonly lost: number;
  /** Whether the position was none of the topic's (a restored table), and begins anew. */
  readonly reset: boolean;
  /** The number up to which all messages were taken or counted. */
  readonly position: number;
}

/** The sum of a topic's updates, from when a connection was opened until it has caught up. */
export interface FeedSync {
  received: number;
  lost: number;
  reset: boolean;
}

export interface FeedOptions {
  /** The address of the WebSocket API, `wss://...`. */
  url: string;
  /** The address to poll, `https://.../poll`, where a network blocks WebSockets. */
  poll?: string;
  /** A token, good for 5 minutes; or a function that fetches one, called for each connection. */
  token: string | (() => string | Promise<string>);
  /** Position by topic `feed/key`, up to 100 of them; null: begin. */
  positions: Readonly<Record<string, number | null>>;
  /** Called with what is new; the position has moved before. */
  onUpdate(update: FeedUpdate): void;
  /** Called for each topic when it has caught up after a connection was opened. */
  onSync?(topic: string, sync: Readonly<FeedSync>): void;
  /** Called after `onUpdate` with each new position, for an application that stores them. */
  onPosition?(topic: string, position: number): void;
  /** Called when the server refuses a topic, which is left; null: all, and the client is closed. */
  onError?(topic: string | null, code: string, text: string): void;
  /** Chance from 0 to 1, for the jitter; `Math.random` by default. */
  random?(): number;
}

const MAX_TOPICS = 100;
const MAX_REQUEST = 32 * 1024; // bytes: API Gateway closes a socket that sends more at once
const CONNECT_MS = 10_000;
const ANSWER_MS = 10_000;
const WAKE_MS = 5_000; // for an answer where the machine may have slept
const UNANSWERED = 2; // requests after which the socket counts as dead
const BLOCKED = 3; // sockets in a row that never opened, after which it polls
const IDS = 64; // a topic, of messages that were taken last
// bounds of random times, in ms
const SOON = [200, 1_000] as const;
const CHECK = [480_000, 540_000] as const;
const LIFE = [96 * 60_000, 114 * 60_000] as const;
const BACKOFF = [500, 60_000] as const;
const PAUSE = [2_000, 20_000] as const; // between polls: longer while there is no news

interface Entry {
  topic: string;
  after: number;
  upto: number;
  messages: FeedMessage[];
  note: string;
}

/** What a client needs of a socket. */
interface Connection {
  readonly readyState: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  send(text: string): void;
  close(): void;
}

/** Polls as a socket: each request is answered in its turn, and nothing comes in between. */
class Polls implements Connection {
  readonly readyState = 1; // open
  onopen: Connection["onopen"] = null;
  onmessage: Connection["onmessage"] = null;
  onclose: Connection["onclose"] = null;
  /** Up to how many ms may pass until the next poll. */
  pause: number = PAUSE[0];
  readonly #ended = new AbortController();
  readonly #url: string;
  readonly #headers: { authorization: string };

  constructor(url: string, token: string) {
    this.#url = url;
    this.#headers = { authorization: `Bearer ${token}` };
    queueMicrotask(() => this.onopen?.(null));
  }

  send(text: string): void {
    this.#answer(text).then(
      (data) => this.onmessage?.({ data }),
      () => this.onclose?.(null),
    );
  }

  async #answer(text: string): Promise<string> {
    const { op, id, topics } = JSON.parse(text);
    if (op === "leave") return JSON.stringify({ a: id }); // a poll follows nothing
    const response = await fetch(this.#url, {
      method: "POST",
      body: text,
      headers: this.#headers,
      signal: this.#ended.signal,
    });
    if (response.status === 204) {
      this.pause = Math.min(PAUSE[1], this.pause * 1.5);
      const t = Object.entries(topics).map(([topic, position]) => [topic, position, position, []]);
      return JSON.stringify({ a: id, t });
    }
    this.pause = PAUSE[0];
    if (response.status === 200 || response.status === 400) return response.text();
    throw new Error(`HTTP ${response.status}`); // the token has ended, or the server is busy
  }

  close(): void {
    this.#ended.abort();
  }
}

/** The state of a topic on one client. */
class Topic {
  position: number | null;
  kind: Kind | undefined;
  /** The greatest number that was shown since it was asked last. */
  seen = 0;
  acknowledged = 0;
  /** Whether the present connection has asked for it. */
  asked = false;
  sync: FeedSync | null = null;
  ids: string[] = [];

  constructor(position: number | null) {
    this.position = position;
  }

  opened(): void {
    this.asked = false;
    this.sync = { received: 0, lost: 0, reset: false };
  }

  /** Whether it is to be asked soon: it lacks messages, or has some to acknowledge. */
  get behind(): boolean {
    const position = this.position ?? 0;
    const unacknowledged = this.kind === "private" && position > this.acknowledged;
    return !this.asked || this.seen > position || unacknowledged;
  }

  /** Take what follows the position, never what follows a gap; null: it tells nothing. */
  take(entry: Entry, answer: boolean, current: boolean): FeedUpdate | null {
    // a later request than the one that a late answer is to may have been reset already
    const reset = current && entry.note === "reset";
    if (reset || (answer && this.position === null)) this.position = entry.after;
    const { position, kind } = this;
    if (position === null || !kind || (entry.after > position && kind !== "snapshot")) {
      this.seen = Math.max(this.seen, entry.upto);
      return null;
    }

    let messages = entry.messages.filter((message) => message.number > position);
    const lost = Math.max(0, entry.upto - position) - messages.length;
    this.position = Math.max(position, entry.upto);
    if (answer && (entry.note === "more" || entry.note === "reset")) this.seen = entry.upto + 1;
    if (kind !== "snapshot") messages = messages.filter((message) => this.remember(message.id));
    if (!messages.length && !lost && !reset) return null;
    if (this.sync) {
      this.sync.received += messages.length;
      this.sync.lost += lost;
      this.sync.reset ||= reset;
    }
    return { topic: entry.topic, kind, messages, lost, reset, position: this.position };
  }

  private remember(id: string): boolean {
    if (this.ids.includes(id)) return false;
    this.ids.push(id);
    if (this.ids.length > IDS) this.ids.shift();
    return true;
  }
}

/**
 * Follows topics of feeds: messages in order, each once, and a count of those that are lost.
 *
 * It works until `close`, over broken connections, and asks at once when the page is shown again,
 * the network is back or the machine wakes.
 */
export class FeedClient {
  readonly #options: FeedOptions;
  readonly #topics = new Map<string, Topic>();
  readonly #left = new Set<string>();
  readonly #listening = new AbortController();
  #socket: Connection | null = null;
  /** Sockets in a row that never opened. */
  #blocked = 0;
  /** The one thing that is to be done next: timers that are late are never two. */
  #timer: ReturnType<typeof setTimeout> | undefined;
  #life: ReturnType<typeof setTimeout> | undefined;
  #attempt = 0;
  #failures = 0;
  #requests = 0;
  #waiting: { id: number; positions: Map<Topic, number | null>; left: string[] } | null = null;
  #unanswered = 0;
  #soon = false;
  #retrying = false;
  #ended = false;

  /** TypeError: the URL is none of a WebSocket, or a topic or position is none. */
  constructor(options: FeedOptions) {
    if (!/^wss?:\/\/[^/]/.test(options.url)) {
      throw new TypeError("url: expected a URL of a WebSocket, as wss://host/stage");
    }
    if (options.poll !== undefined && !/^https?:\/\/[^/]/.test(options.poll)) {
      throw new TypeError("poll: expected a URL as https://host/poll");
    }
    this.#options = options;
    for (const [topic, position] of Object.entries(options.positions)) this.#add(topic, position);
    // neither exists in Node
    const { signal } = this.#listening;
    for (const name of ["pageshow", "online"]) {
      globalThis.addEventListener?.(name, this.#wake, { signal });
    }
    globalThis.document?.addEventListener("visibilitychange", this.#wake, { signal });
    this.#connect();
  }

  /** A copy of the position of each topic. */
  get positions(): Record<string, number | null> {
    return Object.fromEntries([...this.#topics].map(([name, topic]) => [name, topic.position]));
  }

  /** Follow one more topic, from a position; null: begin. One that is followed stays as it is. */
  join(topic: string, position: number | null = null): void {
    if (this.#ended || this.#topics.has(topic)) return;
    this.#add(topic, position);
    this.#left.delete(topic);
    if (this.#timer === undefined) this.#connect(); // it had no topic
    else this.#settle(0);
  }

  /** Follow a topic no more; return its position, with which `join` goes on. */
  leave(topic: string): number | null {
    const position = this.#topics.get(topic)?.position ?? null;
    if (this.#topics.delete(topic)) this.#left.add(topic);
    this.#settle();
    return position;
  }

  /** Close the connection; nothing is called any more. */
  close(): void {
    this.#ended = true;
    this.#drop();
    this.#listening.abort();
  }

  #add(name: string, position: number | null): void {
    if (!/^[A-Za-z0-9][\w.-]{0,119}\/(?!\*?$)/.test(name)) {
      throw new TypeError(`topic: expected 'feed/key', got '${name}'`);
    }
    if (position !== null && !(Number.isSafeInteger(position) && position >= 0)) {
      throw new TypeError(`positions: expected null or a whole number from 0 for '${name}'`);
    }
    const names = [...this.#topics.keys(), name];
    const longest = names.map((one) => [one, Number.MAX_SAFE_INTEGER]);
    if (names.length > MAX_TOPICS || bytes(Object.fromEntries(longest)) > MAX_REQUEST - 64) {
      throw new TypeError(`topics: expected at most ${MAX_TOPICS}, which fit a request of 32 KB`);
    }
    const topic = new Topic(position);
    topic.opened();
    this.#topics.set(name, topic);
  }

  #connect(): void {
    this.#drop();
    this.#retrying = false;
    if (this.#idle) return;
    const attempt = this.#attempt;
    this.#schedule(CONNECT_MS, () => this.#retry());
    this.#open(attempt).catch(() => attempt === this.#attempt && this.#retry());
  }

  async #open(attempt: number): Promise<void> {
    const { url, poll, token } = this.#options;
    const text = `${typeof token === "string" ? token : await token()}`.trim();
    if (attempt !== this.#attempt) return;
    if (!/^[\w.-]+$/.test(text)) {
      // a sign-in page, or JSON; a network may have sent it, so the next answer may be a token
      console.warn(`fairbox-feeds: token: expected one, got ${text.length} characters of a text`);
      throw new TypeError("token");
    }
    // after polls that have ended, it tries one socket
    const polls = poll && this.#blocked >= BLOCKED ? new Polls(poll, text) : null;
    this.#blocked = polls ? BLOCKED - 1 : this.#blocked + 1;
    const socket: Connection = polls ?? new WebSocket(url, ["fairbox.v1", `token.${text}`]);
    this.#socket = socket;
    socket.onopen = () => {
      if (!polls) this.#blocked = 0;
      this.#opened();
    };
    socket.onmessage = (event) => this.#received(event.data);
    socket.onclose = () => this.#retry();
  }

  /** Give up the socket, if there is one, and whatever is planned. */
  #drop(): void {
    this.#attempt += 1;
    clearTimeout(this.#timer);
    clearTimeout(this.#life);
    this.#timer = undefined;
    this.#waiting = null;
    if (!this.#socket) return;
    // a close event that comes late is none of the next socket's
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close();
    this.#socket = null;
  }

  /** Give up the socket, and open another after a while if there is something to follow. */
  #retry(): void {
    this.#drop();
    if (this.#idle) return;
    const bound = Math.min(BACKOFF[1], BACKOFF[0] * 2 ** Math.min(this.#failures, 10));
    this.#failures += 1;
    this.#retrying = true;
    // it connects when the network is back, but not all browsers know whether there is one
    const offline = globalThis.navigator?.onLine === false;
    this.#schedule(offline ? BACKOFF[1] : this.#between([0, bound]), () => this.#connect());
  }

  #opened(): void {
    for (const topic of this.#topics.values()) topic.opened();
    this.#unanswered = 0;
    this.#life = setTimeout(() => this.#retry(), this.#between(LIFE));
    this.#act();
  }

  /** Ask, unless too many requests are unanswered or there is nothing to follow. */
  #act(): void {
    if (this.#waiting) this.#unanswered += 1;
    if (this.#unanswered < UNANSWERED && !this.#idle) this.#ask(ANSWER_MS);
    else this.#retry();
  }

  /** Send a request: for all topics, or of those that were left if nothing else is to be asked. */
  #ask(patience: number): void {
    this.#requests += 1;
    this.#schedule(patience, () => this.#act());
    const full = this.#topics.size + this.#left.size > MAX_TOPICS;
    const left = full || !this.#behind ? [...this.#left].slice(0, MAX_TOPICS) : [];
    const positions = new Map<Topic, number | null>();
    this.#waiting = { id: this.#requests, positions, left };
    for (const topic of left.length ? [] : this.#topics.values()) {
      positions.set(topic, topic.position);
      topic.asked = true;
      topic.seen = 0; // the answer is read later than what a frame has shown so far
    }
    const [op, topics] = left.length ? ["leave", left] : ["sync", this.positions];
    this.#socket?.send(JSON.stringify({ op, id: this.#requests, topics }));
  }

  /** Take a message of the socket; one that has a malformed part is ignored whole. */
  #received(text: unknown): void {
    let frame: ReturnType<typeof parse>;
    try {
      frame = parse(text);
    } catch {
      return;
    }
    const { answer, id, kinds, entries, errors } = frame;
    const whole = errors.find(([topic]) => topic === null);
    if (whole && whole[1] !== "reconnect") {
      this.close();
      this.#refused(...whole);
      return;
    }
    const current = !whole && this.#waiting !== null && id === this.#waiting.id;
    if (current) this.#answered();
    for (const [name, kind] of kinds) {
      const topic = this.#topics.get(name);
      if (topic) topic.kind = kind;
    }
    for (const [name, code, words] of errors) {
      if (name !== null && this.#topics.delete(name)) this.#refused(name, code, words);
    }
    // one by one: what is called may leave a topic whose entry is still to come
    for (const entry of entries) this.#take(entry, answer, current);
    if (whole || this.#idle) this.#retry();
    else this.#settle();
  }

  #answered(): void {
    const { positions, left } = this.#waiting!;
    this.#waiting = null;
    this.#unanswered = this.#failures = 0;
    for (const [topic, position] of positions) topic.acknowledged = position ?? 0;
    for (const name of left) this.#left.delete(name);
    // a topic that was left puts no check off
    this.#soon = left.length > 0;
    const socket = this.#socket;
    const check = socket instanceof Polls ? ([socket.pause / 2, socket.pause] as const) : CHECK;
    this.#schedule(this.#between(this.#soon ? SOON : check), () => this.#act());
  }

  #take(entry: Entry, answer: boolean, current: boolean): void {
    const topic = this.#topics.get(entry.topic);
    if (!topic || this.#ended) return;
    const before = topic.position;
    const update = topic.take(entry, answer, current);
    const { position, sync } = topic;
    if (update) this.#call(() => this.#options.onUpdate(update));
    if (position !== null && position !== before) {
      this.#call(() => this.#options.onPosition?.(entry.topic, position));
    }
    if (current && sync && !topic.behind && this.#topics.get(entry.topic) === topic) {
      topic.sync = null;
      this.#call(() => this.#options.onSync?.(entry.topic, sync));
    }
  }

  #refused(topic: string | null, code: string, text: string): void {
    const options = this.#options;
    if (options.onError) this.#call(() => options.onError?.(topic, code, text));
    else console.error(`fairbox-feeds: ${topic ?? "all topics"}: ${code}: ${text}`);
  }

  /** Plan a request if a topic is behind or was left; a later call does not put it off. */
  #settle(delay?: number): void {
    const open = this.#socket?.readyState === WebSocket.OPEN;
    if (!open || this.#waiting || (this.#soon && delay === undefined)) return;
    if (!this.#behind && !this.#left.size) return;
    this.#soon = true;
    this.#schedule(delay ?? this.#between(SOON), () => this.#act());
  }

  /** Whether there is nothing to follow. */
  get #idle(): boolean {
    return this.#ended || !this.#topics.size;
  }

  get #behind(): boolean {
    return [...this.#topics.values()].some((topic) => topic.behind);
  }

  /** Ask at once: after sleep a dead socket still says that it is open. */
  #wake = (event: Event): void => {
    const loaded = event.type === "pageshow" && !(event as PageTransitionEvent).persisted;
    if (loaded || globalThis.document?.hidden) return;
    if (event.type === "online") this.#blocked = 0; // another network, perhaps
    if (this.#retrying) {
      this.#failures = 0;
      this.#connect();
    } else if (this.#socket?.readyState === WebSocket.OPEN && this.#unanswered < UNANSWERED - 1) {
      this.#unanswered = UNANSWERED - 1;
      this.#ask(WAKE_MS);
    }
  };

  #schedule(ms: number, act: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(act, ms);
  }

  #between([least, most]: readonly [number, number]): number {
    return least + (most - least) * (this.#options.random ?? Math.random)();
  }

  /** Call the application: an error of its own is thrown where it harms no state. */
  #call(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}

function bytes(value: object): number {
  return new TextEncoder().encode(JSON.stringify(value)).length;
}

/** Return the parts of a frame or answer; it throws where one is malformed. */
function parse(text: unknown) {
  const frame = JSON.parse(text as string);
  const { a: id, t = [], kinds = {}, err = [] } = frame;
  return {
    answer: "a" in frame,
    id: id as unknown,
    kinds: Object.entries(kinds).map(([name, kind]) => {
      check(kind === "snapshot" || kind === "ring" || kind === "private");
      return [name, kind as Kind] as const;
    }),
    entries: (t as unknown[][]).map(parseEntry),
    errors: (err as unknown[][]).map(([topic, code, words]) => {
      check(topic === null || typeof topic === "string");
      return [topic as string | null, String(code), String(words)] as const;
    }),
  };
}

function parseEntry([topic, after, upto, list, note = ""]: any[]): Entry {
  const messages: FeedMessage[] = list.map(parseMessage);
  const numbers = [after, ...messages.map((message) => message.number), upto];
  check(typeof topic === "string" && numbers.every((n) => Number.isSafeInteger(n) && n >= 0));
  // messages ascend behind `after`; the last one may be `upto` itself
  const last = messages.length + 1;
  check(numbers.every((n, i) => !i || n > numbers[i - 1] || (i === last && n === numbers[i - 1])));
  return { topic, after, upto, messages, note };
}

function parseMessage([number, id, body, coding]: any[]): FeedMessage {
  check(typeof id === "string" && (coding === undefined || coding === "b64"));
  if (coding) body = Uint8Array.from(atob(body), (char) => char.charCodeAt(0));
  return { number, id, body };
}

function check(condition: boolean): void {
  if (!condition) throw new SyntaxError("malformed");
}
