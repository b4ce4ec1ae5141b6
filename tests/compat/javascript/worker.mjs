// Functions that the tests call: node worker.mjs ADDRESS KEYS FLAGS, where FLAGS is a directory.

import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Worker } from "./index.mjs";

const [address, keys, flags] = process.argv.slice(2);

async function wait(name) {
  // Whoever waits for it reads what is in it.
  writeFileSync(join(flags, `${name}-begins`), String(process.pid));
  renameSync(join(flags, `${name}-begins`), join(flags, `${name}-began`));
  await new Promise((resolve, reject) => {
    this.signal.addEventListener("abort", () => {
      writeFileSync(join(flags, `${name}-stopped`), "");
      reject(this.signal.reason);
    });
  });
}

function check(value) {
  if (value < 0) throw new RangeError(`${value} is negative`);
  return Math.sqrt(value);
}

const worker = new Worker(address, { keys, workers: 2, name: "from JavaScript" });
worker.register("echo", (...args) => args);
worker.register("check", check);
worker.register("later", async (value) => check(value));
worker.register("wait", wait);
worker.register("date", () => new Date());
worker.register("pid", () => process.pid);
worker.register("die", () => process.kill(process.pid, "SIGKILL"));
worker.register("spin", () => {
  for (;;);
});
await worker.run();
