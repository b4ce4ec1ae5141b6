// The process that keeps workers, and speaks for them even while their tasks keep them from speaking.

import { fork } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readSync, rmSync } from "node:fs";
import { constants, hostname, tmpdir } from "node:os";
import { join } from "node:path";

import { ClusterError } from "./errors.mjs";
import { keysFor } from "./keys.mjs";
import { Peer, clock, newPeerId } from "./peer.mjs";
import { Tag, hello } from "./wire.mjs";

const HEARTBEAT_S = 2;
const LOOK_S = 0.2;
/** A scheduler that is silent for so long is given up. */
const SILENCE_S = 30;
const STDERR_CHARS = 4000;
const RESTART_AFTER_MS = 100;

/** Runs `count` workers until the scheduler ends the cluster, or `stop` is called. */
export class Supervisor {
  #address;
  #keys;
  #count;
  #peer = null;
  #look;
  #beatAt = 0;
  /** The workers that live, by their child processes. */
  #slots = new Map();
  #isLeaving = false;
  #settle;

  constructor(address, { keys, workers }) {
    this.#address = address;
    this.#keys = keysFor(address, "worker", keys);
    this.#count = workers;
  }

  /** Run workers; rejects with a ClusterError if the scheduler refuses, or is silent. */
  async run() {
    const ended = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    const stop = () => this.stop();
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
    this.#join();
    this.#look = setInterval(() => this.#heartbeat(), 1000 * LOOK_S);
    try {
      await ended;
    } finally {
      clearInterval(this.#look);
      process.off("SIGTERM", stop);
      process.off("SIGINT", stop);
    }
  }

  /** Leave, with all workers. */
  stop(error = null) {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    this.#killAll("the supervisor leaves");
    this.#peer.say([Tag.GOODBYE, ""]);
    this.#peer.leave().then(() => (error ? this.#settle.reject(error) : this.#settle.resolve()));
  }

  #join() {
    this.#peer = new Peer(this.#address, newPeerId("S"), this.#keys, (message) => this.#handle(message));
    this.#peer.say(hello("supervisor", process.pid, hostname(), { workers: this.#count }));
  }

  #heartbeat() {
    const { heardAt, refusal } = this.#peer;
    if (refusal || clock() > heardAt + SILENCE_S) {
      const why = refusal ? `does not listen to this process: ${refusal}` : "does not answer";
      this.stop(new ClusterError(`the scheduler at ${this.#address} ${why}`));
    } else if (clock() >= this.#beatAt) {
      this.#beatAt = clock() + HEARTBEAT_S;
      this.#peer.say([Tag.HEARTBEAT]);
    }
  }

  #handle({ tag, fields }) {
    switch (tag) {
      case Tag.WELCOME:
        while (this.#slots.size < this.#count && !this.#isLeaving) this.#start();
        break;
      case Tag.KILL:
        this.#kill(Buffer.from(fields[0]).toString(), fields[1]);
        break;
      case Tag.REFUSED:
        this.stop(new ClusterError(`the scheduler at ${this.#address} says: ${fields[0]}`));
        break;
      case Tag.GOODBYE:
        this.stop();
        break;
      case Tag.UNKNOWN:
        this.#peer.close();
        // It has heard the Goodbye.
        if (this.#isLeaving) break;
        // It is another scheduler, or gave this one up: begin anew, under another name.
        this.#killAll("the scheduler does not know it");
        this.#join();
    }
  }

  // -- workers -----------------------------------------------------------------------------------

  #start() {
    const directory = mkdtempSync(join(tmpdir(), "scaler-js-"));
    const file = openSync(join(directory, "slot"), "w+");
    // Both processes have it open: nobody needs its name.
    rmSync(directory, { recursive: true });
    const child = fork(process.argv[1], process.argv.slice(2), {
      stdio: ["ignore", "inherit", "pipe", "ipc", file],
      env: { ...process.env, SCALER_TASK_PROCESS: "1" },
      detached: true,
    });
    const slot = { child, file, peer: newPeerId("W"), isReady: false, reason: "", stderr: "" };
    this.#slots.set(child, slot);
    child.stderr.setEncoding("utf8").on("data", (text) => {
      slot.stderr = (slot.stderr + text).slice(-STDERR_CHARS);
      process.stderr.write(text);
    });
    child.on("message", () => {
      slot.isReady = true;
      child.send({ peer: slot.peer, supervisor: this.#peer.id });
    });
    // What its tasks have started would keep its stderr open.
    child.on("exit", () => killGroup(child));
    child.on("close", (code, signal) => this.#ended(slot, code, signal));
  }

  #kill(peer, reason) {
    for (const slot of this.#slots.values()) {
      if (slot.peer === peer) this.#killOne(slot, reason);
    }
  }

  #killAll(reason) {
    for (const slot of this.#slots.values()) this.#killOne(slot, reason);
  }

  #killOne(slot, reason) {
    slot.reason = reason;
    killGroup(slot.child);
  }

  #ended(slot, code, signal) {
    this.#slots.delete(slot.child);
    const [session, task] = lastTask(slot.file);
    closeSync(slot.file);
    if (this.#isLeaving) return;
    if (!slot.isReady && !slot.reason) {
      this.#peer.say([Tag.INITIALIZER_FAILED, slot.stderr || `it ended with exit code ${code}`]);
      this.stop(new ClusterError(`the workers cannot start: ${slot.stderr}`));
      return;
    }
    const death = {
      pid: slot.child.pid,
      host: hostname(),
      exit_code: code,
      signal: signal && constants.signals[signal],
      stderr_tail: slot.stderr,
      reason: slot.reason,
    };
    this.#peer.say([Tag.WORKER_LOST, Buffer.from(slot.peer), session, task, death]);
    setTimeout(() => this.#isLeaving || this.#start(), RESTART_AFTER_MS);
  }
}

/** Kill a worker, and the child processes of its task. */
function killGroup(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // All have ended.
  }
}

/** Return session and number of the task that a worker ran last; 0: it ran none. */
function lastTask(file) {
  const record = Buffer.alloc(16);
  readSync(file, record, 0, 16, 0);
  return [record.readBigUInt64LE(0), record.readBigUInt64LE(8)];
}
