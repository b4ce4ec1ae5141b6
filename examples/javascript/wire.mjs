// Messages, envelopes and batches as bytes: see docs/protocol.md.

import { decode, encode } from "@msgpack/msgpack";

export const PROTOCOL = 12;
/** What Hello says of Python: who has none speaks of named calls alone. */
export const NO_PYTHON = "";
export const CALL_NAMED = 4;
export const NOWHERE = ["", "", "", 0];

export const Tag = Object.freeze({
  HELLO: 1, WELCOME: 2, REFUSED: 3, HEARTBEAT: 4, GOODBYE: 5, UNKNOWN: 6,
  FUNCTION: 10, FORGET: 11, SUBMIT: 12, CANCEL: 13, RESULTS: 14, FAILED: 15, BROKEN: 17,
  CANCELLED: 18, RETURNED: 19,
  ASSIGN: 20, REVOKE: 21, REVOKED: 22, ABORT: 23, ABORTED: 24, STARTED: 25, DONE: 26, ERRED: 27,
  RETIRE: 29, ASSIGN_NODES: 31,
  WORKER_LOST: 40, KILL: 41, INITIALIZER_FAILED: 42, GAP: 47,
  FAILED_RANGE: 63, UNPLACED: 64, REQUEST_CREDIT: 65, GRANT_CREDIT: 66,
});

/** From here on a buffer is a frame of its own. */
const FRAME_BYTES = 8192;
/** Integers of 64 bits are BigInts: numbers of tasks and sessions are larger than 2 ** 53. */
const OPTIONS = { useBigInt64: true };

/** Return a Hello; `given` are the fields that are not empty. */
export function hello(role, pid, host, given = {}) {
  const { supervisor = Buffer.alloc(0), workers = 0, capabilities = [], name = "" } = given;
  return [
    Tag.HELLO, role, PROTOCOL, NO_PYTHON, pid, host, supervisor, 0, workers, NOWHERE, false,
    Buffer.alloc(0), name, capabilities, 0, "", false, 0, Buffer.alloc(0), "", "", "",
  ];
}

/** Return the frames of an envelope: in each message, large buffers become frames of their own. */
export function encodeEnvelope(incarnation, to, seq, ack, messages) {
  const frames = [null];
  frames[0] = encode([incarnation, to, seq, ack, ...messages.map((one) => lift(one, frames))], OPTIONS);
  return frames;
}

function lift(value, frames) {
  if (value instanceof Uint8Array) {
    return value.length < FRAME_BYTES ? value : frames.push(value) - 1;
  }
  return Array.isArray(value) ? value.map((one) => lift(one, frames)) : value;
}

/** Return what an envelope holds; each message knows its frames. */
export function decodeEnvelope(frames) {
  const [incarnation, to, seq, ack, ...messages] = decode(frames[0], OPTIONS);
  return {
    incarnation: BigInt(incarnation),
    to: BigInt(to),
    seq: Number(seq),
    ack: Number(ack),
    messages: messages.map(([tag, ...fields]) => ({ tag, fields, frames })),
  };
}

/** Return about how many bytes a message takes. */
export function sizeOf(value) {
  if (value instanceof Uint8Array || typeof value === "string") return value.length;
  return Array.isArray(value) ? value.reduce((sum, one) => sum + sizeOf(one), 16) : 16;
}

/** Return the bytes of a Buffer field: they are in the message, or in a frame. */
export function bufferOf(field, frames) {
  return typeof field === "number" ? frames[field] : field;
}

/** Return a Batch of payloads: where each ends, where the first begins, and all their bytes. */
export function toBatch(payloads) {
  const ends = Buffer.alloc(4 * payloads.length);
  let end = 0;
  payloads.forEach((one, i) => ends.writeUInt32LE((end += one.length), 4 * i));
  return [ends, 0, payloads.length === 1 ? payloads[0] : Buffer.concat(payloads)];
}

/** Return the payloads of a Batch. */
export function fromBatch([packed, base, data], frames) {
  const ends = asBuffer(bufferOf(packed, frames));
  const bytes = bufferOf(data, frames);
  const payloads = [];
  for (let at = 0, low = 0; at < ends.length; at += 4) {
    const high = ends.readUInt32LE(at) - base;
    payloads.push(bytes.subarray(low, high));
    low = high;
  }
  return payloads;
}

/** Return capabilities as they are sent: a demand, or an offer. */
export function toCapabilities(capabilities = {}) {
  return Object.entries(capabilities).sort(([a], [b]) => (a < b ? -1 : 1));
}

function asBuffer(bytes) {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
