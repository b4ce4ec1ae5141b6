// A client: it has named functions called by workers, whatever language these speak.

import { hostname } from "node:os";

import { blake2b } from "@noble/hashes/blake2.js";

import { ClusterError, TaskError } from "./errors.mjs";
import { keysFor } from "./keys.mjs";
import { Peer, clock, newPeerId } from "./peer.mjs";
import { pack, packCall, unpack } from "./values.mjs";
import { CALL_NAMED, Tag, fromBatch, hello, toBatch, toCapabilities } from "./wire.mjs";

const CONNECT_TIMEOUT_S = 10;
const HEARTBEAT_S = 2;
/** A scheduler that is silent for so long is given up. */
const SILENCE_S = 30;
const RUN_TASKS_MAX = 4096;
const RUN_BYTES_MAX = 256 * 1024;
const LOOK_MS = 20;
const NO_OBJECTS = [];

export class Client {
  #peer;
  #address;
  #welcome = null;
  #error = null;
  #beat;
  #nextTask = 0;
  /** Digests of the functions that the scheduler was told, by their names. */
  #functions = new Map();
  /** Tasks that are in no message yet. */
  #asked = [];
  #isAsking = false;
  /** Who waits for each task that has not come back. */
  #pending = new Map();
  /** Tasks that may be sent; a scheduler with limits is asked first. */
  #credit = Infinity;
  #uncounted = 0;

  /**
   * Return a client of the scheduler at an address; rejects with a ClusterError if there is none.
   *
   * `keys` is the path of client.key, or of the directory that it is in; see keysFor().
   */
  static async connect(address, { keys, timeout = CONNECT_TIMEOUT_S } = {}) {
    const client = new Client(address, keysFor(address, "client", keys));
    try {
      await client.#greet(timeout);
    } catch (error) {
      client.#peer.close();
      throw error;
    }
    client.#beat = setInterval(() => client.#heartbeat(), 1000 * HEARTBEAT_S);
    return client;
  }

  constructor(address, keys) {
    this.#address = address;
    this.#peer = new Peer(address, newPeerId("C"), keys, (message) => this.#handle(message));
  }

  /**
   * Have the function of this name called with `args`, and with the keyword arguments `kwargs` if it
   * is one of Python; return a promise of what it returns.
   *
   * `capabilities` are what the worker must offer, such as `{python: -1}`; tasks of a higher
   * `priority` run first; a task is stopped after `timeout` seconds; it runs again up to `retries`
   * times if it fails or its worker dies. An AbortSignal as `signal` cancels it, also if it runs.
   */
  submit(name, args = [], options = {}) {
    return new Promise((resolve, reject) => {
      if (this.#error) throw this.#error;
      const { signal, kwargs = {} } = options;
      signal?.throwIfAborted();
      const payload = packCall(name, args, kwargs);
      const task = this.#nextTask++;
      const cancel = () => this.#cancel(task, signal.reason);
      signal?.addEventListener("abort", cancel, { once: true });
      const settle = () => signal?.removeEventListener("abort", cancel);
      this.#pending.set(task, { resolve, reject, settle });
      this.#asked.push({ task, name, options: optionsOf(options), payload });
      this.#uncounted += 1;
      this.#askSoon();
    });
  }

  /** Leave. What has not come back is cancelled, and its promises are rejected. */
  async disconnect() {
    if (this.#error) return;
    this.#fail(new ClusterError("this client has disconnected"));
    this.#peer.say([Tag.GOODBYE, ""]);
    await this.#peer.leave();
  }

  // -- asking ------------------------------------------------------------------------------------

  #askSoon() {
    if (this.#isAsking) return;
    this.#isAsking = true;
    setImmediate(() => this.#ask());
  }

  /** Say what was asked for: neighbours with the same function and options share a message. */
  #ask() {
    this.#isAsking = false;
    if (this.#error) return;
    const peer = this.#peer;
    if (this.#welcome.asksFirst && this.#uncounted) {
      peer.say([Tag.REQUEST_CREDIT, Math.max(this.#uncounted, 0), Math.max(-this.#uncounted, 0)]);
      this.#uncounted = 0;
    }
    const asked = this.#asked.splice(0, Math.min(this.#asked.length, this.#credit));
    this.#credit -= asked.length;
    for (let start = 0; start < asked.length; ) {
      const { task, name, options } = asked[start];
      let [stop, bytes] = [start, 0];
      const belongs = (one) =>
        one.task === task + stop - start && one.name === name &&
        one.options.key === options.key && stop - start < RUN_TASKS_MAX && bytes < RUN_BYTES_MAX;
      while (stop < asked.length && belongs(asked[stop])) bytes += asked[stop++].payload.length;
      const batch = toBatch(asked.slice(start, stop).map((one) => one.payload));
      const digest = this.#teach(name);
      peer.say([Tag.SUBMIT, task, digest, CALL_NAMED, options.fields, batch, NO_OBJECTS]);
      start = stop;
    }
    peer.flush();
  }

  /** Return the digest of a function, which the scheduler is told once. */
  #teach(name) {
    let digest = this.#functions.get(name);
    if (digest === undefined) {
      const payload = Buffer.from(pack([name], "a name"));
      digest = Buffer.from(blake2b(Buffer.concat([Buffer.alloc(1), payload]), { dkLen: 16 }));
      this.#functions.set(name, digest);
      this.#peer.say([Tag.FUNCTION, digest, payload, NO_OBJECTS, name]);
    }
    return digest;
  }

  #cancel(task, reason) {
    const waiter = this.#take(task);
    if (!waiter) return;
    const index = this.#asked.findIndex((one) => one.task === task);
    if (index >= 0) {
      this.#asked.splice(index, 1);
      this.#uncounted -= 1;
      this.#askSoon();
    } else {
      this.#peer.say([Tag.CANCEL, task, 1, false]);
    }
    waiter.reject(reason);
  }

  // -- what the scheduler says -------------------------------------------------------------------

  async #greet(timeout) {
    this.#peer.say(hello("client", process.pid, hostname()));
    const end = clock() + timeout;
    while (!this.#welcome) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      if (this.#error) throw this.#error;
      if (this.#peer.refusal) {
        const why = `the scheduler at ${this.#address} does not listen to this process`;
        throw new ClusterError(`${why}: ${this.#peer.refusal}`);
      }
      if (!this.#welcome && clock() > end) {
        const what = `no scheduler answered at ${this.#address} within ${timeout} s`;
        throw new ClusterError(`${what}: is it running, and are these its address and its key?`);
      }
    }
  }

  #heartbeat() {
    if (clock() > this.#peer.heardAt + SILENCE_S) {
      this.#end(new ClusterError(`the scheduler at ${this.#address} does not answer any more`));
    } else {
      this.#peer.say([Tag.HEARTBEAT]);
    }
  }

  #handle({ tag, fields, frames }) {
    switch (tag) {
      case Tag.WELCOME:
        this.#welcome = { session: fields[0], asksFirst: fields[3] };
        if (fields[3]) this.#credit = 0;
        break;
      case Tag.RESULTS:
        fromBatch(fields[1], frames).forEach((one, i) => this.#returned(Number(fields[0]) + i, one));
        break;
      case Tag.FAILED:
        this.#take(fields[0])?.reject(new TaskError(fields[1], fields[3]));
        break;
      case Tag.FAILED_RANGE:
        this.#takeRange(fields).forEach((one) => one.reject(new TaskError(fields[2], fields[3])));
        break;
      case Tag.RETURNED:
        this.#take(fields[0])?.reject(new TaskError("result", { message: "the result is a pickle" }));
        break;
      case Tag.CANCELLED:
        this.#takeRange(fields).forEach((one) => one.reject(new ClusterError("it was cancelled")));
        break;
      case Tag.GRANT_CREDIT:
        this.#credit += Number(fields[0]);
        this.#askSoon();
        break;
      case Tag.UNPLACED:
        process.emitWarning(fields.at(-1));
        break;
      case Tag.REFUSED:
        this.#end(new ClusterError(`the scheduler at ${this.#address} says: ${fields[0]}`));
        break;
      case Tag.BROKEN:
      case Tag.GOODBYE:
        this.#end(new ClusterError(fields[0]));
        break;
      case Tag.UNKNOWN: {
        const what = `the scheduler at ${this.#address} does not know this client any more`;
        this.#end(new ClusterError(`${what}: it was started anew, or gave this client up`));
      }
    }
  }

  #returned(task, payload) {
    const waiter = this.#take(task);
    try {
      waiter?.resolve(unpack(payload));
    } catch (error) {
      waiter.reject(error);
    }
  }

  #takeRange([first, count]) {
    const tasks = Array.from({ length: Number(count) }, (_, i) => Number(first) + i);
    return tasks.map((task) => this.#take(task)).filter(Boolean);
  }

  #take(number) {
    const task = Number(number);
    const waiter = this.#pending.get(task);
    this.#pending.delete(task);
    waiter?.settle();
    return waiter;
  }

  #end(error) {
    this.#fail(error);
    this.#peer.close();
  }

  /** Nothing comes back any more, and nothing more is asked for. */
  #fail(error) {
    this.#error ??= error;
    clearInterval(this.#beat);
    this.#asked = [];
    for (const task of [...this.#pending.keys()]) this.#take(task).reject(error);
  }
}

/** Return the options of a task as they are sent, and what tells them from others. */
function optionsOf({ priority = 0, timeout = null, retries = 0, capabilities = {} }) {
  const fields = [
    priority, timeout, retries, false, false, false, 0, toCapabilities(capabilities), [], 0, 1, "",
  ];
  return { fields, key: JSON.stringify(fields) };
}
