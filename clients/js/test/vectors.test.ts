/** The vectors of all clients: each rule of what a client asks, takes and counts. */

import assert from "node:assert/strict";
import { test } from "node:test";
import file from "../../feed_vectors.json" with { type: "json" };
import { Socket, Stage } from "./stage.ts";

const MOMENT = 0.001;

/** Each step has some of these; the file says what they mean. */
interface Step {
  asks?: object;
  after?: number;
  answer?: unknown[];
  to?: number | null;
  err?: unknown[];
  push?: unknown[];
  receives?: string;
  news?: unknown[];
  refuses?: unknown[];
  passes?: number;
  closes?: number;
  gives_up?: number;
  waits?: number;
  times?: number;
  steps?: Step[];
}

interface Vector {
  name: string;
  positions: Record<string, number | null>;
  steps: Step[];
  chance?: number;
}

class Run {
  requests = 0;
  connecting = true;
  readonly stage: Stage;

  constructor(stage: Stage) {
    this.stage = stage;
  }

  take(steps: Step[]): void {
    for (const step of steps) {
      const { socket, told, errors } = this.stage;
      if (this.connecting && step.closes === undefined) {
        this.connecting = false;
        socket.open();
      }
      told.length = errors.length = 0;
      this.step(step, socket);
      assert.deepEqual(told, step.news ?? []);
      assert.deepEqual(errors, step.refuses ? [step.refuses] : []);
    }
  }

  step(step: Step, socket: Socket): void {
    const sockets = Socket.all.length;
    if (step.asks) {
      this.wait(step.after ?? 0);
      this.requests += 1;
      assert.deepEqual(socket.sent.at(-1), { op: "sync", id: this.requests, topics: step.asks });
    } else if (step.answer) {
      const to = "to" in step ? { a: step.to } : {};
      socket.answer(step.answer, { ...to, err: step.err ?? [] });
    } else if (step.push) socket.push(...step.push);
    else if (step.receives !== undefined) socket.onmessage?.({ data: step.receives });
    else if (step.passes) this.quiet(step.passes);
    else if (step.closes !== undefined) {
      socket.fail();
      this.reopens(step.closes, sockets);
    } else if (step.gives_up !== undefined) {
      this.wait(step.gives_up);
      assert.equal(socket.readyState, 3);
      this.reopens(step.waits ?? 0, sockets);
    } else for (let n = 0; n < step.times!; n += 1) this.take(step.steps!);
  }

  /** Let time pass in which the client does nothing. */
  quiet(seconds: number): void {
    const state = () => [Socket.all.length, this.stage.socket.readyState, this.stage.socket.sent];
    const before = structuredClone(state());
    this.stage.pass(seconds);
    assert.deepEqual(state(), before);
  }

  /** Let time pass in which the client does nothing before its last moment. */
  wait(seconds: number): void {
    if (seconds) this.quiet(seconds - MOMENT);
    this.stage.pass(seconds ? MOMENT : 0);
  }

  reopens(seconds: number, before: number): void {
    this.wait(seconds);
    assert.equal(Socket.all.length, before + 1);
    this.connecting = true;
  }
}

for (const { name, positions, steps, chance = 0 } of file.vectors as Vector[]) {
  test(name, (context) => {
    new Run(new Stage(context, { positions, random: () => chance })).take(steps);
  });
}

