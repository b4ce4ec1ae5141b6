// node example_worker.mjs ADDRESS [KEYS]: workers with a few functions, until the cluster ends.

import { Worker } from "./index.mjs";

const [address, keys] = process.argv.slice(2);

function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

async function wait(ms, value) {
  await new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    // Cancelled, or out of time.
    this.signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(this.signal.reason);
    });
  });
  return value;
}

const worker = new Worker(address, { keys, workers: 2, capabilities: { javascript: -1 } });
worker.register("median", median);
worker.register("words", (text) => text.split(/\s+/).filter(Boolean));
worker.register("echo", (...args) => args);
worker.register("wait", wait);
await worker.run();
