export { Client } from "./client.mjs";
export { ClusterError, TaskError } from "./errors.mjs";
export { Worker } from "./worker.mjs";
