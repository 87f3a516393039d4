/** The client in a page: sleep, networks that come and go, tokens, and its application. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test, type TestContext } from "node:test";
import { FeedClient } from "../fairbox-feeds.ts";
import { Page, RING, Socket, Stage } from "./stage.ts";

const entry = (number: number) => [RING, number - 1, number, [[number, `i${number}`, 0]]];

/** Let what is promised come. */
const promised = () => new Promise(setImmediate);

/** Return the page's window, and its document. */
function page(context: TestContext): [EventTarget, Page] {
  const [window, document] = [new EventTarget(), new Page()];
  const add = window.addEventListener.bind(window);
  const remove = window.removeEventListener.bind(window);
  Object.assign(globalThis, { document, addEventListener: add, removeEventListener: remove });
  context.after(() => {
    for (const name of ["document", "addEventListener", "removeEventListener"]) {
      Reflect.deleteProperty(globalThis, name);
    }
  });
  return [window, document];
}

test("it offers its token, and closes for good, in a callback too", (context) => {
  const [window] = page(context);
  const numbers: number[] = [];
  const stage = new Stage(context, {
    onUpdate: (update) => {
      numbers.push(update.position);
      stage.client.close();
    },
  });
  assert.deepEqual(stage.socket.protocols, ["fairbox.v1", "token.t"]);
  stage.socket.open();
  stage.socket.answer([entry(6), entry(7)]);
  assert.equal(stage.socket.readyState, 3);
  stage.client.join("prices/eur");
  stage.pass(100_000);
  assert.deepEqual([Socket.all.length, numbers], [1, [6]]);
  assert.deepEqual(stage.client.positions, { [RING]: 6 });
  assert.deepEqual(getEventListeners(window, "online"), []);
});

for (const name of ["visibilitychange", "pageshow", "online"]) {
  test(`after sleep a socket says that it is open: on ${name} it asks at once`, (context) => {
    const [window, document] = page(context);
    const stage = new Stage(context);
    const { socket } = stage;
    const wake = () => {
      const event = Object.assign(new Event(name), { persisted: true });
      (name === "visibilitychange" ? document : window).dispatchEvent(event);
    };
    socket.open();
    socket.answer();
    document.hidden = true;
    wake();
    assert.equal(socket.sent.length, 1);
    document.hidden = false;
    wake();
    wake();
    assert.equal(socket.sent.length, 2);
    stage.pass(4.999);
    assert.equal(socket.readyState, Socket.OPEN);
    stage.pass(0.001);
    assert.deepEqual([socket.readyState, Socket.all.length], [3, 2]);

    // what the old one still says is nothing
    socket.fail();
    stage.socket.open();
    stage.socket.answer();
    wake();
    stage.socket.answer();
    stage.pass(400);
    assert.equal(Socket.all.length, 2);
    assert.equal(stage.socket.sent.length, 2);
  });
}

test("what is under way is not begun again by a page that loads", async (context) => {
  const [window] = page(context);
  const token = context.mock.fn(() => Promise.resolve("t"));
  const stage = new Stage(context, { token });
  window.dispatchEvent(new Event("online"));
  await promised();
  stage.socket.open();
  window.dispatchEvent(new Event("pageshow"));
  assert.deepEqual([token.mock.callCount(), stage.socket.sent.length], [1, 1]);
});

test("where it waits for its next attempt, it makes it when the network is back", (context) => {
  const [window] = page(context);
  const stage = new Stage(context, { random: () => 1 });
  for (const seconds of [0.5, 1, 2, 4, 8, 16]) {
    stage.socket.fail();
    stage.pass(seconds);
  }
  stage.socket.fail();
  stage.client.join("prices/eur");
  stage.pass(2);
  assert.equal(Socket.all.length, 7);
  window.dispatchEvent(new Event("online"));
  window.dispatchEvent(new Event("online"));
  assert.equal(Socket.all.length, 8);
  stage.socket.fail();
  stage.pass(0.5);
  assert.equal(Socket.all.length, 9);
});

test("without a network it tries once a minute, and when the network is back", (context) => {
  const [window] = page(context);
  Object.defineProperty(navigator, "onLine", { value: false, configurable: true });
  const stage = new Stage(context);
  stage.socket.fail();
  stage.pass(59.999);
  assert.equal(Socket.all.length, 1);
  stage.pass(0.001);
  assert.equal(Socket.all.length, 2);
  stage.socket.fail();
  Reflect.deleteProperty(navigator, "onLine");
  window.dispatchEvent(new Event("online"));
  assert.equal(Socket.all.length, 3);
});

test("a socket that is connecting for ten seconds is replaced", (context) => {
  const stage = new Stage(context);
  const { socket } = stage;
  stage.client.join("prices/eur");
  stage.pass(9.999);
  assert.equal(socket.readyState, 0);
  stage.pass(0.001);
  assert.deepEqual([socket.readyState, Socket.all.length], [3, 2]);
});

test("without a network or a token it tries on, with a new token", async (context) => {
  const tokens = [
    () => Promise.reject(new Error("offline")),
    () => new Promise<string>(() => {}), // it never comes
    () => "t1 ",
    () => Promise.resolve("t2"),
  ];
  const stage = new Stage(context, { token: () => tokens.shift()!() });
  await promised();
  assert.equal(Socket.all.length, 0);
  stage.pass(0.001);
  await promised();
  stage.pass(10);
  await promised();
  stage.pass(0.001);
  await promised();
  assert.deepEqual(stage.socket.protocols, ["fairbox.v1", "token.t1"]);
  stage.socket.fail();
  stage.pass(0.001);
  await promised();
  assert.deepEqual(stage.socket.protocols, ["fairbox.v1", "token.t2"]);
  assert.equal(Socket.all.length, 2);
});

test("what is no token is told on the console, and asked for again", async (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const tokens = ["<html>", "", { token: "t" } as never, "t1"];
  const stage = new Stage(context, { token: () => tokens.shift()! });
  for (let n = 0; n < 4; n += 1) {
    await promised();
    stage.pass(0.001);
  }
  assert.equal(warn.mock.callCount(), 3);
  assert.deepEqual(Socket.all.map(({ protocols }) => protocols[1]), ["token.t1"]);
});

for (const refused of [false, true]) {
  test(`a token that comes too late is none${refused ? ", or is refused" : ""}`, async (context) => {
    let late: ((token: string) => void)[] = [];
    const tokens = [new Promise<string>((...both) => (late = both)), "t1"];
    const stage = new Stage(context, { token: () => tokens.shift()! });
    stage.pass(10.001);
    await promised();
    late[Number(refused)]!("t0");
    await promised();
    stage.pass(9);
    assert.deepEqual(Socket.all.map(({ protocols }) => protocols[1]), ["token.t1"]);
    assert.equal(stage.socket.readyState, 0);
  });
}

test("timers that come late, all at once, are one request", (context) => {
  const stage = new Stage(context);
  stage.socket.open();
  stage.socket.answer();
  stage.socket.push([RING, 6, 7, []], [RING, 7, 8, []]);
  stage.socket.push([RING, 8, 9, []]);
  stage.pass(9);
  assert.equal(stage.socket.sent.length, 2);
});

test("the position moves first: a callback may leave and join again", (context) => {
  const told: unknown[] = [];
  const stage = new Stage(context, {
    onUpdate: (update) => {
      told.push([update.messages.length, stage.client.positions[RING]]);
      if (told.length === 1) stage.client.join(RING, stage.client.leave(RING));
    },
    onPosition: (topic, position) => told.push([topic, position]),
    onSync: () => told.push("level"),
  });
  stage.socket.open();
  stage.socket.answer([entry(6), entry(7)]);
  stage.socket.push(entry(7), entry(8));
  assert.deepEqual(told, [[1, 6], [RING, 6]]);
  stage.pass(1);
  assert.deepEqual(stage.socket.sent.at(-1)?.topics, { [RING]: 6 });
  stage.socket.answer([entry(7), entry(8)]);
  assert.deepEqual(told.slice(2), [[1, 7], [RING, 7], "level", [1, 8], [RING, 8]]);
  stage.pass(1);
  assert.ok(stage.socket.sent.every(({ op }) => op === "sync"));
});

test("topics come and go: those that were left are named, never instead of a check", (context) => {
  const stage = new Stage(context);
  stage.socket.open();
  stage.client.join("prices/eur");
  stage.socket.answer();
  stage.pass(0.2);
  assert.deepEqual(stage.socket.sent.at(-1)?.topics, { [RING]: 5, "prices/eur": null });
  stage.socket.answer();
  assert.equal(stage.client.leave(RING), 5);
  stage.client.join("inbox/u7");
  stage.pass(0);
  assert.deepEqual(stage.socket.sent.at(-1)?.topics, { "prices/eur": null, "inbox/u7": null });
  stage.socket.answer();
  stage.pass(0.2);
  assert.deepEqual(stage.socket.sent.at(-1), { op: "leave", id: 4, topics: [RING] });
  stage.socket.answer();
  stage.pass(0.2);
  assert.equal(stage.socket.sent.at(-1)?.op, "sync");
  stage.socket.answer();
  stage.pass(479);
  assert.equal(stage.socket.sent.length, 5);
});

test("without a topic it has no socket", (context) => {
  const stage = new Stage(context, { positions: {} });
  assert.equal(Socket.all.length, 0);
  stage.client.join(RING, 5);
  stage.socket.open();
  stage.socket.answer();
  stage.client.leave(RING);
  stage.pass(0.2);
  assert.deepEqual([stage.socket.readyState, stage.socket.sent.length], [3, 1]);
  stage.pass(10_000);
  assert.equal(Socket.all.length, 1);
});

test("of a hundred topics, those that were left make room first", (context) => {
  const positions = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`a/${n}`, 0]));
  const stage = new Stage(context, { positions });
  assert.throws(() => stage.client.join("b/0"), /^TypeError: topics: expected at most 100/);
  stage.socket.open();
  stage.socket.answer();
  Object.keys(positions).forEach((name) => stage.client.leave(name));
  for (const name of ["b/0", "b/1"]) {
    stage.client.join(name);
    if (name === "b/0") stage.client.leave(name);
  }
  stage.pass(0);
  const { op, topics } = stage.socket.sent.at(-1)!;
  assert.deepEqual([op, topics], ["leave", Object.keys(positions)]);
  stage.socket.answer();
  stage.pass(0.2);
  assert.deepEqual(stage.socket.sent.at(-1)?.topics, { "b/1": null });
});

test("a resume is told from one with loss, of each topic when it is level", (context) => {
  const told: unknown[] = [];
  const stage = new Stage(context, {
    positions: { [RING]: 5, "inbox/u7": 0 },
    onSync: (topic, sync) => told.push([topic, sync]),
  });
  const inbox = (upto: number) => ["inbox/u7", upto - 1, upto, [[upto, `p${upto}`, 0]]];
  stage.socket.open();
  stage.socket.answer([[...entry(6), "more"], inbox(1)]);
  assert.deepEqual(told, [], "one has more, of the other the next may be beyond its window");
  stage.pass(0.2);
  stage.socket.answer([entry(7), ["inbox/u7", 1, 1, []]]);
  const none = { received: 0, lost: 0, reset: false };
  assert.deepEqual(told.splice(0), [
    [RING, { ...none, received: 2 }],
    ["inbox/u7", { ...none, received: 1 }],
  ]);
  stage.socket.push(entry(8));
  stage.pass(480);
  stage.socket.answer([[RING, 8, 9, [[9, "i9", 0]]]]);
  assert.deepEqual(told, []);
  stage.socket.fail();
  stage.pass(0.001);
  stage.socket.open();
  stage.socket.answer([[RING, 9, 20, [[20, "i20", 0]]], ["inbox/u7", 0, 0, [], "reset"]]);
  assert.deepEqual(told.splice(0), [[RING, { ...none, received: 1, lost: 10 }]]);
  stage.pass(0.2);
  stage.socket.answer([["inbox/u7", 0, 0, []]]);
  assert.deepEqual(told, [["inbox/u7", { ...none, reset: true }]]);
});

test("bodies that are not JSON are bytes", (context) => {
  const bodies: unknown[] = [];
  const stage = new Stage(context, {
    onUpdate: ({ messages }) => bodies.push(...messages.map((message) => message.body)),
  });
  stage.socket.open();
  stage.socket.answer([[RING, 5, 7, [[6, "i6", { n: [1.5, null] }], [7, "i7", "AP8=", "b64"]]]]);
  assert.deepEqual(bodies, [{ n: [1.5, null] }, Uint8Array.of(0, 255)]);
});

test("an error of the application's is thrown, where it harms nothing", (context) => {
  const later = context.mock.method(globalThis, "queueMicrotask", () => {});
  const stage = new Stage(context, {
    onUpdate: ({ position }) => {
      if (position === 6) throw new Error("mine");
      stage.told.push(position);
    },
  });
  stage.socket.open();
  stage.socket.answer([entry(6), entry(7)]);
  assert.deepEqual(stage.told, [7]);
  assert.throws(later.mock.calls[0]!.arguments[0] as () => void, /mine/);
});

test("what the server refuses is on the console where no one takes it", (context) => {
  const error = context.mock.method(console, "error", () => {});
  const { onError: _, ...rest } = new Stage(context).options;
  context.after(() => client.close());
  const client = new FeedClient(rest);
  Socket.all.at(-1)!.open();
  Socket.all.at(-1)!.answer([], { err: [[RING, "not_allowed", "no grant"]] });
  assert.match(String(error.mock.calls[0]?.arguments[0]), /trades\/btc: not_allowed: no grant/);
});

for (const [field, options] of Object.entries({
  url: [{ url: "https://host" }, { url: "wss://" }, { url: "" }],
  topic: ["trades", "/k", "a/", "a/*"].map((name) => ({ positions: { [name]: 0 } })),
  positions: [-1, 0.5, "7" as never].map((position) => ({ positions: { "a/k": position } })),
  topics: [101, "k".repeat(33_000)].map((n) => ({
    positions: Object.fromEntries([...Array(Number(n) || 1).keys()].map((i) => [`a/${n}${i}`, 0])),
  })),
})) {
  test(`bad options are refused by name: ${field}`, (context) => {
    for (const bad of options) {
      const error = { name: "TypeError", message: new RegExp(`^${field}: `) };
      assert.throws(() => new Stage(context, bad), error);
      context.mock.timers.reset();
    }
  });
}
