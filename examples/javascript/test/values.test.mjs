import assert from "node:assert/strict";
import { test } from "node:test";

import { pack, packCall, unpack } from "../values.mjs";

test("values come back as they were sent", () => {
  const values = [
    null, true, 0, -1, 127, 128, 2 ** 31, 2 ** 32, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER,
    2n ** 63n, -(2n ** 63n), 1.5, Infinity, "", "é\u{1f600}", [], [[1]], {}, { a: { b: [null] } },
  ];
  assert.deepEqual(unpack(pack(values, "values")), values);
  assert.deepEqual(Buffer.from(unpack(pack(Buffer.from("é"), "bytes"))), Buffer.from("é"));
});

test("a whole number goes as an integer", () => {
  assert.equal(pack(2 ** 40, "a number")[0], 0xcf);
  assert.equal(pack(-(2 ** 40), "a number")[0], 0xd3);
  assert.equal(pack(3.0, "a number")[0], 3);
  assert.equal(pack(2n ** 63n, "a number")[0], 0xcf);
});

test("what cannot be carried is named", () => {
  const refused = [() => 1, Symbol("s"), new Date(), new Map(), 2n ** 64n, Promise.resolve()];
  for (const one of refused) {
    assert.throws(() => packCall("f", [1, [one]], {}), /^TypeError: argument 1 of f: .* cannot carry a /);
    assert.throws(() => packCall("f", [], { k: one }), /^TypeError: argument k of f: /);
  }
});
