// Which keys a process shows, and to whom: see docs/security.md.

import { readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** What a process says that speaks to anybody, and lets anybody speak to it. */
export const INSECURE = "insecure";

/**
 * Return `{server, public, secret}` for an address, all in Z85; null: it needs no keys there.
 *
 * `keys` is a file of scaler_keys, or a directory with one for the role. Without it, a loopback
 * address has the keys of its user, others those that SCALER_KEYS or SCALER_KEY names. Throws if
 * there are none.
 */
export function keysFor(address, role, keys = undefined, environment = process.env) {
  if (!address.startsWith("tcp://")) return null;
  if (keys === undefined && isLoopback(address)) return parse(readPrivate(loopbackFile(environment)));
  const given = keys ?? environment.SCALER_KEYS;
  if (given === INSECURE) return null;
  if (given) return parse(readPrivate(fileOf(given, role)), given);
  if (environment.SCALER_KEY) return parse(environment.SCALER_KEY, "SCALER_KEY");
  throw new Error(`${address} is no loopback address, so it needs keys: pass the path of ${role}.key`);
}

/** Return the scheduler's public key and the pair of the last line that has a secret. */
export function parse(text, source = "the file of keys") {
  const lines = text.split("\n").filter((line) => line && !line.startsWith("# "));
  const words = lines.map((line) => line.split(/\s+/).filter(Boolean));
  const server = words.find((line) => line[0] === "scheduler")?.[2];
  const own = words.findLast((line) => line.length === 4);
  if (!server || !own) throw new Error(`${source} holds no keys of scaler_keys`);
  return { server, public: own[2], secret: own[3] };
}

function isLoopback(address) {
  const host = address.slice("tcp://".length, address.lastIndexOf(":"));
  return host === "localhost" || host === "[::1]" || /^127(\.\d+){3}$/.test(host);
}

function loopbackFile(environment) {
  const state = environment.XDG_STATE_HOME || join(homedir(), ".local", "state");
  return join(state, "scaler", "loopback.key");
}

function fileOf(path, role) {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ? join(path, `${role}.key`) : path;
}

function readPrivate(path) {
  const status = statSync(path, { throwIfNoEntry: false });
  if (!status) throw new Error(`there are no keys in ${path}`);
  if (process.platform !== "win32" && status.mode & 0o077) {
    throw new Error(`other users can read the keys in ${path}: chmod 600 ${path}`);
  }
  return readFileSync(path, "ascii");
}
