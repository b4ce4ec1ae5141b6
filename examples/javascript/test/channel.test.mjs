import assert from "node:assert/strict";
import { test } from "node:test";

import { ACKNOWLEDGE_EVERY, Channel } from "../channel.mjs";
import { decodeEnvelope, fromBatch, toBatch } from "../wire.mjs";

const PRINTED = 28;

function numbers(messages) {
  return messages.map(({ fields }) => Number(fields[0]));
}

/** A number between 0 and 1 that is the same in each run. */
function chances(seed) {
  let state = seed;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

test("each message arrives once and in order, whatever the link loses, repeats or delays", () => {
  for (let seed = 1; seed <= 30; seed += 1) {
    const chance = chances(seed);
    const [here, there] = [new Channel(1n), new Channel(2n)];
    const [heardHere, heardThere] = [[], []];
    let wires = [];
    const carry = (to, frames) => {
      const copies = chance() < 0.3 ? 0 : chance() < 0.2 ? 2 : 1;
      for (let i = 0; i < copies; i += 1) wires.splice(Math.floor(chance() * wires.length), 0, [to, frames]);
    };
    let now = 0;
    for (let turn = 0; turn < 40 || !(here.isSettled && there.isSettled); turn += 1) {
      assert.ok(turn < 5000, `seed ${seed}`);
      now += 0.1;
      if (turn < 40) carry(there, here.send([[PRINTED, turn]], now));
      if (turn < 40 && turn % 3 === 0) carry(here, there.send([[PRINTED, turn]], now));
      const due = wires;
      wires = [];
      for (const [to, frames] of due) {
        (to === here ? heardHere : heardThere).push(...numbers(to.receive(frames, now)));
      }
      for (const frames of here.tick(now)) carry(there, frames);
      for (const frames of there.tick(now)) carry(here, frames);
    }
    assert.deepEqual(heardThere, Array.from({ length: 40 }, (_, i) => i));
    assert.deepEqual(heardHere, Array.from({ length: 14 }, (_, i) => 3 * i));
  }
});

test("who hears much acknowledges at once", () => {
  const [here, there] = [new Channel(1n), new Channel(2n)];
  for (let i = 0; i < ACKNOWLEDGE_EVERY; i += 1) {
    assert.deepEqual(there.tick(0), []);
    there.receive(here.send([[PRINTED, i]], 0), 0);
  }
  const [frames] = there.tick(0);
  assert.equal(decodeEnvelope(frames).ack, ACKNOWLEDGE_EVERY);
  here.receive(frames, 0);
  assert.ok(here.isSettled);
});

test("what is for an earlier life is not heard", () => {
  const [here, there] = [new Channel(1n), new Channel(2n)];
  there.receive(here.send([[PRINTED, 0]], 0), 0);
  assert.deepEqual(numbers(new Channel(3n).receive(there.send([[PRINTED, 1]], 0), 0)), []);
});

test("payloads share a batch, which may be a part of another, and large ones are frames", () => {
  const payloads = [Buffer.from("a"), Buffer.alloc(0), Buffer.alloc(10000, "b")];
  const [here, there] = [new Channel(1n), new Channel(2n)];
  const frames = here.send([[PRINTED, toBatch(payloads)]], 0);
  assert.equal(frames.length, 2);
  const [message] = there.receive(frames, 0);
  assert.deepEqual(fromBatch(message.fields[0], message.frames).map(String), payloads.map(String));
  const part = [Uint32Array.of(7, 9), 5, Buffer.from("abcd")];
  part[0] = new Uint8Array(part[0].buffer);
  assert.deepEqual(fromBatch(part, []).map(String), ["ab", "cd"]);
});
