// Arguments and results: what named calls carry, to MessagePack and back.
//
// Python has integers where JavaScript has numbers. A whole number goes as an integer, also one of
// more than 32 bits; an integer that no number can hold exactly arrives as a BigInt.

import { decode, encode } from "@msgpack/msgpack";

const CARRIED =
  "null, booleans, numbers, BigInts of 64 bits, texts, Buffers and Uint8Arrays, and arrays and " +
  "plain objects of these";

const OPTIONS = { useBigInt64: true };

/** Return a value in MessagePack; throws a TypeError, which begins with `what`, if it cannot be. */
export function pack(value, what) {
  return encode(named(what, value), OPTIONS);
}

/** Return the payload of a call; throws a TypeError that names the argument at fault. */
export function packCall(name, args, kwargs) {
  const keyed = Object.entries(kwargs).map(([key, one]) => [key, named(`argument ${key} of ${name}`, one)]);
  const values = args.map((one, i) => named(`argument ${i} of ${name}`, one));
  return encode([values, Object.fromEntries(keyed)], OPTIONS);
}

/** Return the value that somebody packed; throws if it is none. */
export function unpack(payload) {
  return fromWire(decode(payload, OPTIONS));
}

function named(what, value) {
  try {
    return carried(value);
  } catch (error) {
    throw new TypeError(`${what}: ${error.message}`);
  }
}

function carried(value) {
  switch (typeof value) {
    case "boolean":
    case "string":
      return value;
    case "undefined":
      return null;
    case "number":
      // The encoder would make a float of it.
      return Number.isSafeInteger(value) && !fits32(value) ? BigInt(value) : value;
    case "bigint":
      if (BigInt.asIntN(64, value) === value || BigInt.asUintN(64, value) === value) return value;
      break;
    case "object":
      if (value === null || value instanceof Uint8Array) return value;
      if (Array.isArray(value)) return value.map(carried);
      if (isPlain(value)) {
        return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, carried(one)]));
      }
  }
  const kind = value.constructor?.name ?? typeof value;
  throw new TypeError(`a named call cannot carry a ${kind}. It carries ${CARRIED}`);
}

function fromWire(value) {
  if (typeof value === "bigint") {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }
  if (Array.isArray(value)) return value.map(fromWire);
  if (value !== null && typeof value === "object" && isPlain(value)) {
    for (const key of Object.keys(value)) value[key] = fromWire(value[key]);
  }
  return value;
}

function fits32(value) {
  return value >= -0x80000000 && value <= 0xffffffff;
}

function isPlain(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
