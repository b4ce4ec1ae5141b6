// The process that runs tasks, one after the other.

import { writeSync } from "node:fs";
import { hostname } from "node:os";

import { keysFor } from "./keys.mjs";
import { Peer, clock } from "./peer.mjs";
import { pack, unpack } from "./values.mjs";
import { CALL_NAMED, Tag, bufferOf, fromBatch, hello, sizeOf, toBatch, toCapabilities } from "./wire.mjs";

/** No result of a short task waits longer for others that share its message. */
const REPORT_AFTER_S = 0.02;
/** After a longer task, the next one may be long as well: then no result waits for it. */
const SHORT_S = 0.001;
const REPORT_BYTES = 256 * 1024;
/** So long tasks run before what has arrived is looked at. */
const TURN_S = 0.005;
const NOTHING = Buffer.alloc(0);
const PICKLED =
  "this worker speaks JavaScript and cannot unpickle: pass it named functions " +
  "(scaler_exec.NamedFunction), and demand its capability only for these";

/** Runs tasks until the scheduler says to leave. */
export class TaskProcess {
  #functions;
  #peer;
  #slot;
  /** Names of functions by digest, and null for a pickled one. */
  #known = new Map();
  /** Runs of contiguous tasks that have not all been begun. */
  #queue = [];
  /** The task that runs: its session and number, and what interrupts it. */
  #running = null;
  /** Contiguous tasks that returned and were not reported. */
  #done = null;
  #isWorking = false;
  #isRetiring = false;
  #leave;

  /** `slot` is a file in which the supervisor finds the task that ran last. */
  constructor(address, { keys, capabilities, name, peer, supervisor, slot, functions }) {
    this.#functions = functions;
    this.#slot = slot;
    this.left = new Promise((resolve) => (this.#leave = resolve));
    const found = keysFor(address, "worker", keys);
    this.#peer = new Peer(address, peer, found, (message) => this.#handle(message));
    const given = { supervisor: Buffer.from(supervisor), name, capabilities: toCapabilities(capabilities) };
    this.#peer.say(hello("worker", process.pid, hostname(), given));
  }

  // -- what the scheduler says -------------------------------------------------------------------

  #handle({ tag, fields, frames }) {
    switch (tag) {
      case Tag.FUNCTION:
        this.#known.set(hex(fields[0]), nameIn(bufferOf(fields[1], frames)));
        break;
      case Tag.FORGET:
        this.#known.delete(hex(fields[0]));
        break;
      case Tag.ASSIGN:
        this.#take(fields, frames);
        break;
      case Tag.ASSIGN_NODES:
        this.#refuseNodes(fields, frames);
        break;
      case Tag.REVOKE:
        this.#revoke(...fields.map(BigInt));
        break;
      case Tag.ABORT:
        this.#abort(...fields.map(BigInt));
        break;
      case Tag.RETIRE:
        this.#isRetiring = true;
        this.#leaveIfIdle();
        break;
      case Tag.REFUSED:
      case Tag.GOODBYE:
      case Tag.UNKNOWN:
        this.#queue = [];
        this.#running?.controller.abort();
        this.#peer.close();
        this.#leave();
    }
  }

  #take(fields, frames) {
    const [session, first, digest, call, reportsStart, , batch] = fields;
    const payloads = fromBatch(batch, frames);
    const name = call === CALL_NAMED ? this.#known.get(hex(digest)) : null;
    this.#queue.push({ session: BigInt(session), first: BigInt(first), payloads, name, reportsStart });
    this.#work();
  }

  /** Nodes of graphs are pickles, all of them. */
  #refuseNodes([session, , first, , , , batch], frames) {
    const payloads = fromBatch(batch, frames);
    this.#queue.push({ session: BigInt(session), first: BigInt(first), payloads, name: null });
    this.#work();
  }

  /** Give tasks back that have not begun. */
  #revoke(session, first, count) {
    let taken = 0n;
    for (const run of this.#takeOut(session, first, first + count)) taken += run[1] - run[0];
    this.#say([Tag.REVOKED, session, first, count, count - taken]);
  }

  /** Drop tasks that have not begun, and interrupt the one that runs. */
  #abort(session, first, count) {
    const stop = first + count;
    for (const [low, high] of this.#takeOut(session, first, stop)) {
      this.#say([Tag.ABORTED, session, low, high - low]);
    }
    const { session: runs, task } = this.#running ?? {};
    if (runs === session && first <= task && task < stop) this.#running.controller.abort();
  }

  /** Remove the tasks of a range that have not begun; return them as ranges. */
  #takeOut(session, first, stop) {
    const [kept, removed] = [[], []];
    for (const run of this.#queue) {
      const end = run.first + BigInt(run.payloads.length);
      const low = first > run.first ? first : run.first;
      const high = stop < end ? stop : end;
      if (run.session !== session || low >= high) {
        kept.push(run);
        continue;
      }
      removed.push([low, high]);
      for (const [from, to] of [[run.first, low], [high, end]]) {
        const payloads = run.payloads.slice(Number(from - run.first), Number(to - run.first));
        if (payloads.length) kept.push({ ...run, first: from, payloads });
      }
    }
    this.#queue = kept;
    return removed;
  }

  // -- tasks -------------------------------------------------------------------------------------

  async #work() {
    if (this.#isWorking) return;
    this.#isWorking = true;
    let turn = clock();
    while (this.#queue.length) {
      const run = this.#queue[0];
      const [session, task, payload] = [run.session, run.first, run.payloads[0]];
      run.first += 1n;
      run.payloads.shift();
      if (!run.payloads.length) this.#queue.shift();
      await this.#run(run, session, task, payload);
      if (clock() > turn + TURN_S) {
        await this.#peer.flush();
        await new Promise(setImmediate);
        turn = clock();
      }
    }
    this.#isWorking = false;
    this.#report();
    this.#peer.flush();
    this.#leaveIfIdle();
  }

  async #run({ name, reportsStart }, session, task, payload) {
    const controller = new AbortController();
    this.#running = { session, task, controller };
    this.#note(session, task);
    if (reportsStart) {
      this.#say([Tag.STARTED, session, task]);
      // It may keep this process from speaking.
      await this.#peer.flush();
    }
    const start = clock();
    let kind = "deserialize";
    try {
      controller.signal.throwIfAborted();
      const [args, kwargs] = this.#read(name, payload);
      kind = "exception";
      const call = this.#find(name);
      // Python's keyword arguments are JavaScript's last argument.
      const all = Object.keys(kwargs).length ? [...args, kwargs] : args;
      let value = call.apply({ signal: controller.signal }, all);
      if (typeof value?.then === "function") {
        // Others hear of it while it waits.
        this.#report();
        value = await value;
      }
      kind = "result";
      const result = pack(value, "the result");
      this.#finish(session, task, clock() - start, result);
    } catch (error) {
      if (controller.signal.aborted) this.#say([Tag.ABORTED, session, task, 1]);
      else this.#say([Tag.ERRED, session, task, clock() - start, kind, NOTHING, detailOf(error, kind)]);
    } finally {
      this.#running = null;
    }
  }

  #read(name, payload) {
    if (typeof name !== "string") throw new TypeError(PICKLED);
    return unpack(payload);
  }

  #find(name) {
    const found = this.#functions.get(name);
    if (found) return found;
    const names = [...this.#functions.keys()].join(", ");
    throw new ReferenceError(`this worker has no function ${name}; it has ${names || "none"}`);
  }

  /** Note for the supervisor which task this process runs: it may die of it. */
  #note(session, task) {
    const record = Buffer.alloc(16);
    record.writeBigUInt64LE(session, 0);
    record.writeBigUInt64LE(task, 8);
    writeSync(this.#slot, record, 0, 16, 0);
  }

  // -- reports -----------------------------------------------------------------------------------

  #finish(session, task, took, result) {
    const done = this.#done;
    if (done && done.session === session && done.first + BigInt(done.results.length) === task) {
      done.took += took;
      done.bytes += sizeOf(result);
      done.results.push(result);
    } else {
      this.#report();
      this.#done = { session, first: task, took, bytes: sizeOf(result), results: [result], since: clock() };
    }
    const isDue = clock() > this.#done.since + REPORT_AFTER_S || took > SHORT_S;
    if (isDue || this.#done.bytes > REPORT_BYTES) this.#report();
  }

  /** Report the tasks that have returned. */
  #report() {
    const done = this.#done;
    if (!done) return;
    this.#done = null;
    this.#peer.say([Tag.DONE, done.session, done.first, done.took, toBatch(done.results)]);
  }

  /** Say something after what is known of earlier tasks. */
  #say(message) {
    this.#report();
    this.#peer.say(message);
  }

  async #leaveIfIdle() {
    if (!this.#isRetiring || this.#isWorking || this.#queue.length) return;
    this.#say([Tag.GOODBYE, ""]);
    await this.#peer.leave();
    this.#leave();
  }
}

/** Return the name in the payload of a function; null: it is a pickle. */
function nameIn(payload) {
  if ((payload[0] & 0xf0) !== 0x90) return null;
  const [name] = unpack(payload);
  return typeof name === "string" ? name : null;
}

function detailOf(error, kind) {
  const isError = error instanceof Error;
  const message = isError ? error.message : String(error);
  const prefix = { deserialize: "the worker cannot read the call: ", result: "the worker cannot send: " };
  return {
    type: isError ? error.name : typeof error,
    message: (prefix[kind] ?? "") + message,
    traceback: isError ? error.stack : message,
  };
}

function hex(bytes) {
  return Buffer.from(bytes).toString("hex");
}
