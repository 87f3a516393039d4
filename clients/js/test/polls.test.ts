/** The client where a network blocks WebSockets: it polls. */

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { FeedClient } from "../fairbox-feeds.ts";
import { KINDS, RING, Socket, Stage } from "./stage.ts";

const POLL = "https://host/poll";
const promised = () => new Promise(setImmediate);
const entry = (number: number) => [RING, number - 1, number, [[number, `i${number}`, 0]]];

interface Asked {
  url: string;
  authorization: string;
  request: { op: string; id: number; topics: object };
  signal: AbortSignal;
  /** Answer with a status, and entries. */
  answer(status: number, t?: unknown[], more?: object): Promise<unknown>;
}

/** A client that polls, and what it asks. */
async function polling(context: TestContext, options: object = {}): Promise<[Stage, Asked[]]> {
  const asked: Asked[] = [];
  context.mock.method(globalThis, "fetch", (url: string, init: RequestInit) => {
    const { authorization } = init.headers as Record<string, string>;
    const request = JSON.parse(init.body as string);
    return new Promise((resolve) => {
      const answer = (status: number, t: unknown[] = [], more: object = {}) => {
        const body = status === 204 ? null : JSON.stringify({ a: request.id, t, ...more });
        resolve(new Response(body, { status }));
        return promised();
      };
      asked.push({ url, authorization: authorization!, request, signal: init.signal!, answer });
    });
  });
  const stage = new Stage(context, { poll: POLL, ...options });
  await promised();
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    assert.deepEqual([Socket.all.length, asked.length], [attempt, 0]);
    await block(stage);
  }
  return [stage, asked];
}

/** Let the network block the socket that is connecting. */
async function block(stage: Stage): Promise<void> {
  stage.socket.fail();
  stage.pass(0.001);
  await promised();
}

test("after three sockets that never opened it polls, often while there is news", async (context) => {
  const synced: unknown[] = [];
  const onSync = (topic: string, sync: object) => synced.push([topic, sync]);
  const [stage, asked] = await polling(context, { onSync });
  assert.deepEqual([asked[0]!.url, asked[0]!.authorization], [POLL, "Bearer t"]);
  assert.deepEqual(asked[0]!.request, { op: "sync", id: 1, topics: { [RING]: 5 } });
  await asked[0]!.answer(204);
  assert.deepEqual(synced, [[RING, { received: 0, lost: 0, reset: false }]]);

  // half of the longest pause: chance is 0 here
  for (const pause of [1.5, 2.25, 3.375, 5.063, 7.594, 10, 10]) {
    const before = asked.length;
    stage.pass(pause - 0.002);
    assert.equal(asked.length, before, `${pause} s`);
    stage.pass(0.002);
    assert.equal(asked.length, before + 1, `${pause} s`);
    await asked.at(-1)!.answer(204);
  }
  stage.pass(10);
  await asked.at(-1)!.answer(200, [entry(6)], { kinds: KINDS });
  stage.pass(1);
  assert.deepEqual(stage.told, [[RING, [6], 0, 6]]);
  assert.deepEqual(asked.at(-1)!.request.topics, { [RING]: 6 });
  assert.equal(Socket.all.length, 3);
});

test("what comes is acknowledged soon, and topics come and go", async (context) => {
  const [stage, asked] = await polling(context, { positions: { [RING]: 5, "inbox/u7": 0 } });
  const inbox = ["inbox/u7", 0, 1, [[1, "p1", 0]]];
  await asked[0]!.answer(200, [[RING, 5, 5, []], inbox], { kinds: KINDS });
  stage.pass(0.2);
  assert.deepEqual(asked[1]!.request.topics, { [RING]: 5, "inbox/u7": 1 });
  await asked[1]!.answer(204);
  stage.client.leave(RING);
  stage.pass(0.2);
  await promised();
  assert.equal(asked.length, 2, "nothing is left on the server");
  stage.pass(0.2);
  assert.deepEqual(asked[2]!.request.topics, { "inbox/u7": 1 });
});

test("when its token has ended it tries a socket, and polls on with a new token", async (context) => {
  let tokens = 0;
  const [stage, asked] = await polling(context, { token: () => `t${++tokens}` });
  await asked[0]!.answer(401);
  stage.pass(0.001);
  await promised();
  assert.equal(Socket.all.length, 4);
  await block(stage);
  assert.equal(asked[1]!.authorization, "Bearer t6");
  await asked[1]!.answer(503);
  stage.pass(0.001);
  await promised();

  // the network has changed
  stage.socket.open();
  stage.socket.fail();
  await block(stage);
  assert.deepEqual([Socket.all.length, asked.length], [6, 2]);
});

test("when the network is back it tries sockets, whatever did not open before", async (context) => {
  const window = new EventTarget();
  Object.assign(globalThis, { addEventListener: window.addEventListener.bind(window) });
  context.after(() => Reflect.deleteProperty(globalThis, "addEventListener"));
  const [stage, asked] = await polling(context);
  window.dispatchEvent(new Event("online"));
  await asked.at(-1)!.answer(401);
  stage.pass(0.001);
  await promised();
  for (let attempt = 4; attempt <= 6; attempt += 1) {
    assert.deepEqual([Socket.all.length, asked.length], [attempt, 2]);
    await block(stage);
  }
  assert.equal(asked.length, 3);
});

test("a bad request is told, and a client that is closed asks no more", async (context) => {
  const [stage, asked] = await polling(context);
  await asked[0]!.answer(400, [], { err: [[null, "bad_request", "wait: expected"]] });
  assert.deepEqual(stage.errors, [[null, "bad_request", "wait: expected"]]);
  assert.equal(asked[0]!.signal.aborted, true);
  stage.pass(100_000);
  assert.equal(asked.length, 1);
});

test("without an address to poll it tries sockets on", async (context) => {
  const stage = new Stage(context);
  for (let attempt = 1; attempt <= 5; attempt += 1) await block(stage);
  assert.equal(Socket.all.length, 6);
  const poll = "wss://host";
  const wrong = () => new FeedClient({ ...stage.options, poll });
  assert.throws(wrong, /^TypeError: poll: expected/);
});
