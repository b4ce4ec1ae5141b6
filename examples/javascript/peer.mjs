// One connection to the scheduler.

import { randomBytes } from "node:crypto";

import * as zmq from "zeromq";

import { Channel } from "./channel.mjs";
import { sizeOf } from "./wire.mjs";

/** Messages that are larger together share no envelope. */
const ENVELOPE_BYTES = 256 * 1024;
const TICK_MS = 50;
const LINGER_MS = 500;
/** After so many handshakes that failed, with none that did not, the keys are the reason. */
const REFUSALS = 3;
/** So long a peer that leaves waits for what it said to be acknowledged. */
const LEAVE_MS = 500;

/** Return a new peer id: a letter for the role, and what nobody can guess. */
export function newPeerId(letter) {
  return letter + randomBytes(9).toString("base64url");
}

/** A DEALER that says each message once, and in order. */
export class Peer {
  #socket;
  #channel = new Channel(BigInt(randomBytes(6).readUIntBE(0, 6)) + 1n);
  #outbox = [];
  #isFlushing = false;
  /** Frames of envelopes that the socket has not taken. */
  #sending = [];
  #isSending = false;
  #sent = Promise.resolve();
  #timer;
  #isClosed = false;

  /** `keys` as keysFor() returns them; `onMessage` is called with each message, in order. */
  constructor(address, id, keys, onMessage) {
    this.id = id;
    /** When the scheduler was heard last, in seconds. */
    this.heardAt = clock();
    /** Why the scheduler does not listen to this process; empty: it was not refused. */
    this.refusal = "";
    this.#socket = new zmq.Dealer({
      routingId: id, linger: LINGER_MS, sendHighWaterMark: 0, receiveHighWaterMark: 0,
    });
    if (keys) {
      this.#socket.curveServerKey = keys.server;
      this.#socket.curvePublicKey = keys.public;
      this.#socket.curveSecretKey = keys.secret;
    }
    this.#watchHandshakes();
    this.#socket.connect(address);
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    this.#receive(onMessage);
  }

  /** Say messages, with whatever else is said in this turn of the event loop. */
  say(...messages) {
    this.#outbox.push(...messages);
    if (!this.#isFlushing) {
      this.#isFlushing = true;
      setImmediate(() => this.flush());
    }
  }

  /** Send now what was said; return a promise of when the socket has taken it. */
  flush() {
    this.#isFlushing = false;
    const said = this.#outbox;
    this.#outbox = [];
    for (let start = 0; start < said.length && !this.#isClosed; ) {
      let stop = start;
      for (let size = 0; stop < said.length && (stop === start || size < ENVELOPE_BYTES); stop += 1) {
        size += sizeOf(said[stop]);
      }
      this.#put(this.#channel.send(said.slice(start, stop), clock()));
      start = stop;
    }
    return this.#sent;
  }

  /** Close the connection once what was said has been acknowledged, but wait for that only so long. */
  async leave() {
    this.flush();
    const end = clock() + LEAVE_MS / 1000;
    while (!this.#channel.isSettled && !this.#isClosed && clock() < end) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    this.close();
  }

  /** Close the connection. */
  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#socket.close();
  }

  #tick() {
    for (const frames of this.#channel.tick(clock())) this.#put(frames);
  }

  #put(frames) {
    this.#sending.push(frames);
    if (!this.#isSending) this.#sent = this.#send();
  }

  async #send() {
    // A socket takes one message at a time.
    this.#isSending = true;
    try {
      while (this.#sending.length && !this.#isClosed) await this.#socket.send(this.#sending.shift());
    } catch (error) {
      if (!this.#isClosed) throw error;
    } finally {
      this.#isSending = false;
    }
  }

  async #receive(onMessage) {
    try {
      for await (const frames of this.#socket) {
        this.heardAt = clock();
        for (const message of this.#channel.receive(frames, this.heardAt)) {
          if (!this.#isClosed) onMessage(message);
        }
      }
    } catch (error) {
      if (!this.#isClosed) throw error;
    }
  }

  #watchHandshakes() {
    const events = this.#socket.events;
    let failures = 0;
    for (const kind of ["auth", "protocol", "other"]) {
      events.on(`handshake:error:${kind}`, () => {
        failures += 1;
        // One alone may be a scheduler that was about to end.
        if (failures >= REFUSALS) this.refusal = "it does not know this key, or has another one";
      });
    }
    events.on("handshake", () => (failures = 0));
  }
}

/** Return a time in seconds that only grows. */
export function clock() {
  return performance.now() / 1000;
}
