import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { keysFor } from "../keys.mjs";

const TEXT = "# keys of a cluster\nclient alice PUBLIC SECRET\nscheduler scheduler SERVER\n";
const FOUND = { server: "SERVER", public: "PUBLIC", secret: "SECRET" };
const FAR = "tcp://10.0.0.1:8516";

test("keys are found where the documents say", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "scaler-keys-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, "client.key");
  writeFileSync(path, TEXT, { mode: 0o600 });

  assert.deepEqual(keysFor(FAR, "client", path, {}), FOUND);
  assert.deepEqual(keysFor(FAR, "client", directory, {}), FOUND);
  assert.deepEqual(keysFor(FAR, "client", undefined, { SCALER_KEYS: directory }), FOUND);
  assert.deepEqual(keysFor(FAR, "client", undefined, { SCALER_KEY: TEXT }), FOUND);
  assert.equal(keysFor(FAR, "client", "insecure", {}), null);
  assert.equal(keysFor("ipc:///tmp/scheduler", "client", undefined, {}), null);
  assert.throws(() => keysFor(FAR, "client", undefined, {}), /it needs keys/);
  assert.throws(() => keysFor(FAR, "worker", directory, {}), /there are no keys in .*worker\.key/);
  // There the environment does not count.
  const state = { XDG_STATE_HOME: directory, SCALER_KEYS: directory };
  assert.throws(() => keysFor("tcp://127.0.0.1:8516", "client", undefined, state), /loopback\.key/);

  chmodSync(path, 0o644);
  assert.throws(() => keysFor(FAR, "client", path, {}), /other users can read/);
});
