/** Where the client stands in tests: time, sockets and a page are set by hand. */

import assert from "node:assert/strict";
import { type TestContext } from "node:test";
import { FeedClient, type FeedOptions } from "../fairbox-feeds.ts";

export const KINDS = { "trades/btc": "ring", "prices/eur": "snapshot", "inbox/u7": "private" };
export const RING = "trades/btc";

/** A socket whose server the test plays. */
export class Socket {
  static OPEN = 1;
  static all: Socket[] = [];
  readyState = 0;
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  sent: { op: string; id: number; topics: unknown }[] = [];
  url: string;
  protocols: string[];

  constructor(url: string, protocols: string[]) {
    [this.url, this.protocols] = [url, protocols];
    Socket.all.push(this);
  }

  send(text: string): void {
    assert.equal(this.readyState, Socket.OPEN);
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.readyState = 3;
  }

  open(): void {
    this.readyState = Socket.OPEN;
    this.onopen?.();
  }

  fail(): void {
    this.readyState = 3;
    this.onclose?.();
  }

  push(...t: unknown[]): void {
    this.onmessage?.({ data: JSON.stringify({ t }) });
  }

  /** Answer a request: the last one, unless it is said. */
  answer(t: unknown[] = [], more: object = {}): void {
    const answer = { a: this.sent.at(-1)?.id, t, kinds: KINDS, ...more };
    this.onmessage?.({ data: JSON.stringify(answer) });
  }
}

/** A page, which may be hidden. */
export class Page extends EventTarget {
  hidden = false;
}

export class Stage {
  readonly told: unknown[] = [];
  readonly errors: unknown[] = [];
  readonly client: FeedClient;
  readonly options: FeedOptions;
  readonly #context: TestContext;

  constructor(context: TestContext, options: Partial<FeedOptions> = {}) {
    this.#context = context;
    context.mock.timers.enable({ apis: ["setTimeout"] });
    Socket.all = [];
    Object.assign(globalThis, { WebSocket: Socket });
    this.options = {
      url: "wss://host/stage",
      token: "t",
      positions: { [RING]: 5 },
      random: () => 0,
      onUpdate: ({ topic, messages, lost, position, reset }) => {
        const numbers = messages.map((message) => message.number);
        this.told.push([topic, numbers, lost, position, ...(reset ? ["reset"] : [])]);
      },
      onError: (...error) => this.errors.push(error),
      ...options,
    };
    this.client = new FeedClient(this.options);
    context.after(() => this.client.close());
  }

  get socket(): Socket {
    return Socket.all.at(-1)!;
  }

  /** Let so many seconds pass. */
  pass(seconds: number): void {
    this.#context.mock.timers.tick(Math.round(seconds * 1_000));
  }
}
