// What a client in JavaScript finds: node client.mjs ADDRESS KEYS; prints JSON.

import { Client } from "./index.mjs";

const [address, keys] = process.argv.slice(2);
const client = await Client.connect(address, { keys });
const python = { capabilities: { python: -1 } };
const javascript = { capabilities: { javascript: -1 } };

function told(error) {
  return { name: error.name, kind: error.kind, message: error.message, trace: error.remoteTraceback };
}

async function failure(name, args, options) {
  try {
    return { value: await client.submit(name, args, options) };
  } catch (error) {
    return told(error);
  }
}

async function cancelled() {
  const controller = new AbortController();
  const waiting = client.submit("time:sleep", [1000], { ...python, signal: controller.signal });
  setImmediate(() => controller.abort());
  return await waiting.catch((error) => error.name);
}

/** Of tasks that never end, most have no room in the scheduler: all of them can be cancelled. */
async function cancelledEarly() {
  const controller = new AbortController();
  const options = { ...python, signal: controller.signal };
  const waiting = Array.from({ length: 1000 }, () => client.submit("time:sleep", [1000], options));
  await new Promise(setImmediate);
  controller.abort();
  const ends = await Promise.allSettled(waiting);
  return ends.filter((one) => one.reason?.name === "AbortError").length;
}

async function many(name, options) {
  const numbers = Array.from({ length: 5000 }, (_, i) => i);
  const found = await Promise.all(numbers.map((one) => client.submit(name, [one, 1], options)));
  return found;
}

const values = [null, true, 1, -1, 2 ** 40, -(2 ** 40), 1.5, "é", [1, [2]], { a: { b: "c" } }];
const found = {
  python: await client.submit("builtins:dict", [], { ...python, kwargs: { values } }),
  javascript: await client.submit("echo", values, javascript),
  bytes: String(await client.submit("builtins:bytes", [Buffer.from("é")], python)),
  large: (await client.submit("builtins:bytes", [1_000_000], python)).length,
  huge: String(await client.submit("builtins:abs", [-(2n ** 62n)], python)),
  raised: await failure("math:sqrt", [-1], python),
  raisedHere: await failure("check", [-1], javascript),
  unknown: await failure("no:such", [], python),
  refused: await failure("echo", [1, new Date()], javascript),
  late: await failure("time:sleep", [1000], { ...python, timeout: 0.1 }),
  died: await failure("os:_exit", [3], { ...python, retries: 0 }),
  cancelled: await cancelled(),
  cancelledEarly: await cancelledEarly(),
  many: (await many("operator:add", python)).every((one, i) => one === i + 1),
  manyHere: (await many("echo", javascript)).every(([one], i) => one === i),
};
await client.disconnect();
found.afterwards = await failure("echo", [], {});
console.log(JSON.stringify(found));
