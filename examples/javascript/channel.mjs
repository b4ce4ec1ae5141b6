// Exactly once, and in order, over a link that may lose or repeat: one side of one conversation.
//
// It does no I/O and knows no clock: it is told the time, in seconds, and returns what to send.

import { Tag, decodeEnvelope, encodeEnvelope } from "./wire.mjs";

export const ACKNOWLEDGE_AFTER_S = 0.1;
export const ACKNOWLEDGE_EVERY = 64;
export const PROBE_AFTER_S = 1;
export const PROBE_AFTER_MAX_S = 30;
const EARLY_MAX = 1024;

export class Channel {
  #incarnation;
  #peer = 0n;
  #next = 1;
  #expected = 1;
  #owed = 0;
  #acknowledgeAt = Infinity;
  /** Envelopes that were sent and not acknowledged, in order: [seq, frames]. */
  #unacked = [];
  /** Envelopes that overtook a lost one, by their numbers. */
  #early = new Map();
  #seen = 0;
  #lostUntil = 0;
  #repeatedUntil = 0;
  #probeAt = Infinity;
  #probeAfter = PROBE_AFTER_S;
  #probed = 0;

  /** `incarnation` is a BigInt other than 0 that this side has as long as it is connected. */
  constructor(incarnation) {
    this.#incarnation = incarnation;
  }

  /** True if all that was sent has been acknowledged. */
  get isSettled() {
    return this.#unacked.length === 0;
  }

  /** Return the frames of an envelope with these messages. They are kept until acknowledged. */
  send(messages, now) {
    const frames = this.#envelope(this.#next, messages);
    if (!this.#unacked.length) this.#probeAt = now + this.#probeAfter;
    this.#unacked.push([this.#next, frames]);
    this.#next += 1;
    this.#owed = 0;
    this.#acknowledgeAt = Infinity;
    return frames;
  }

  /** Take an envelope in; return the messages that are next, if any are. */
  receive(frames, now) {
    const envelope = decodeEnvelope(frames);
    const { incarnation, to, seq, ack, messages } = envelope;
    // What is for an earlier life of this side, or from another scheduler than the one it knows. That
    // one says Unknown, which is not counted.
    if (to !== 0n && to !== this.#incarnation) return [];
    if (messages[0]?.tag === Tag.UNKNOWN) return messages;
    if (this.#peer !== 0n && this.#peer !== incarnation) return [];
    this.#peer = incarnation;
    this.#acknowledged(ack, now);
    if (seq === 0) {
      if (messages[0]?.tag === Tag.GAP) this.#learnOfGap(...messages[0].fields.map(Number));
      return [];
    }
    if (!this.#owed) this.#acknowledgeAt = now + ACKNOWLEDGE_AFTER_S;
    this.#owed += 1;
    if (seq !== this.#expected) {
      this.#acknowledgeAt = now;
      this.#seen = Math.max(seq, this.#expected);
      if (seq > this.#expected && seq <= this.#expected + EARLY_MAX) this.#early.set(seq, messages);
      return [];
    }
    const found = [...messages];
    this.#expected += 1;
    while (this.#early.has(this.#expected)) {
      found.push(...this.#early.get(this.#expected));
      this.#early.delete(this.#expected);
      this.#expected += 1;
      this.#acknowledgeAt = now;
    }
    return found;
  }

  /** Return the frames of each envelope that is due: lost ones, a probe, an acknowledgement. */
  tick(now) {
    const due = [];
    if (this.#lostUntil) {
      due.push(...this.#unacked.filter(([seq]) => seq < this.#lostUntil).map(([, frames]) => frames));
      this.#lostUntil = 0;
      this.#repeatedUntil = this.#next;
      this.#probeAt = now + this.#probeAfter;
    } else if (now >= this.#probeAt && this.#unacked.length) {
      this.#probeAfter = Math.min(2 * this.#probeAfter, PROBE_AFTER_MAX_S);
      this.#probeAt = now + this.#probeAfter;
      due.push(this.#probe());
    }
    if (now >= this.#acknowledgeAt || this.#owed >= ACKNOWLEDGE_EVERY) {
      this.#owed = 0;
      this.#acknowledgeAt = Infinity;
      const start = this.#early.size ? Math.min(...this.#early.keys()) : this.#seen;
      const gap = this.#seen > this.#expected ? [[Tag.GAP, start, this.#seen]] : [];
      due.push(this.#envelope(0, gap));
    }
    return due;
  }

  #envelope(seq, messages) {
    return encodeEnvelope(this.#incarnation, this.#peer, seq, this.#expected - 1, messages);
  }

  #acknowledged(ack, now) {
    const before = this.#unacked.length;
    while (this.#unacked.length && this.#unacked[0][0] <= ack) this.#unacked.shift();
    const wasSlow = this.#probeAfter > PROBE_AFTER_S;
    this.#probeAfter = PROBE_AFTER_S;
    if (!this.#unacked.length) this.#probeAt = Infinity;
    else if (this.#unacked.length < before) this.#probeAt = wasSlow ? now : now + PROBE_AFTER_S;
    else if (wasSlow) this.#probeAt = Math.min(this.#probeAt, now + PROBE_AFTER_S);
  }

  #learnOfGap(start, seen) {
    // What was repeated after that one may be under way.
    if (this.#repeatedUntil <= seen && seen < this.#next) this.#lostUntil = Math.min(start, seen);
  }

  /** Return what brings out whether anything was lost; a peer that never spoke gets the first again. */
  #probe() {
    const [first, opening] = this.#unacked[0];
    if (first === 1 && this.#peer === 0n) return opening;
    const [last, frames] = this.#unacked.at(-1);
    if (last >= this.#repeatedUntil && last === this.#probed) return frames;
    this.#probed = this.#next;
    const probe = this.#envelope(this.#next, []);
    this.#unacked.push([this.#next, probe]);
    this.#next += 1;
    return probe;
  }
}
