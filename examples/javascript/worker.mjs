// Workers for a cluster: functions by their names, run in processes of their own.

import { Supervisor } from "./supervisor.mjs";
import { TaskProcess } from "./task_process.mjs";

/** The file descriptor behind stdin, stdout, stderr and the channel to the parent. */
const SLOT = 4;

/**
 * Runs functions for a scheduler. The program that makes one is started anew for each worker: there
 * `run` runs tasks, here it looks after the workers.
 */
export class Worker {
  #address;
  #options;
  #functions = new Map();

  /**
   * `keys` is the path of worker.key, or of the directory that it is in; see keysFor(). `workers` is
   * the number of worker processes; `capabilities` is what each offers.
   */
  constructor(address, { keys, workers = 1, capabilities = { javascript: -1 }, name = "" } = {}) {
    this.#address = address;
    this.#options = { keys, workers, capabilities, name };
  }

  /** Let tasks call a function, or an async one, by a name. */
  register(name, call) {
    if (typeof call !== "function") throw new TypeError(`${name} is no function`);
    this.#functions.set(name, call);
    return this;
  }

  /** Run until the scheduler ends the cluster; rejects if it refuses these workers. */
  async run() {
    if (!process.env.SCALER_TASK_PROCESS) {
      await new Supervisor(this.#address, this.#options).run();
      return;
    }
    // The programs that tasks start are no workers.
    delete process.env.SCALER_TASK_PROCESS;
    process.on("disconnect", () => process.exit(1));
    const told = new Promise((resolve) => process.once("message", resolve));
    process.send("ready");
    const options = { ...this.#options, ...(await told), slot: SLOT, functions: this.#functions };
    await new TaskProcess(this.#address, options).left;
    process.exit(0);
  }
}
