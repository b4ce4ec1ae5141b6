// node example_client.mjs ADDRESS [KEYS]: has the functions of example_worker.mjs called.

import { Client } from "./index.mjs";

const [address, keys] = process.argv.slice(2);
const client = await Client.connect(address, { keys });
const javascript = { capabilities: { javascript: -1 } };

console.log("the median is", await client.submit("median", [[3, 1, 2]], javascript));
const words = await client.submit("words", ["to be or not to be"], javascript);
console.log("words:", words);
await client.disconnect();
