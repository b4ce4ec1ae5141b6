// What promises are rejected with.

/** A task failed; `remoteTraceback` says where it was raised, in whatever language. */
export class TaskError extends Error {
  constructor(kind, detail) {
    super(describe(kind, detail));
    this.name = "TaskError";
    /** As in the protocol: exception, timeout, worker_died, ... */
    this.kind = kind;
    /** What is known in plain texts and numbers, such as `type` and `message`. */
    this.detail = detail;
    this.remoteTraceback = detail.traceback ?? "";
    if (this.remoteTraceback) this.stack += `\n\nRemote traceback:\n${this.remoteTraceback}`;
  }
}

/** The scheduler does not answer, refused this process, or is gone. */
export class ClusterError extends Error {
  name = "ClusterError";
}

function describe(kind, detail) {
  switch (kind) {
    case "exception":
      return `${detail.type}: ${detail.message}`;
    case "timeout":
      return `the task ran longer than ${detail.timeout_s} s`;
    case "worker_died": {
      const { pid, host, signal, exit_code: code, reason, message } = detail;
      const how = signal ? `was killed by signal ${signal}` : `ended with exit code ${code}`;
      const why = [reason, message].filter(Boolean).map((one) => `: ${one}`).join("");
      return `the worker that ran the task (pid ${pid} on ${host}) ${how}${why}`;
    }
    default:
      return detail.message ?? `the task failed: ${kind}`;
  }
}
