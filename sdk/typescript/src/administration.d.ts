import type { Cancellable } from "./index.js";

/** The most that a key may use a day (UTC). What is absent is not limited. */
export interface Quota {
  /** Processor time, in seconds. */
  cpuSeconds?: number;
  runs?: number;
  /** Memory times the duration of its use, in GiB-seconds. */
  memoryGibSeconds?: number;
  /** Bytes sent to hosts and received from them. */
  egressBytes?: number;
  /** Sandboxes at a time, those of all keys of the tenant together. */
  sandboxes?: number;
}

/** A key of the API, without its secret. */
export interface KeyInfo {
  /** Its public part, which begins with `rf_`. */
  id: string;
  /** Its purpose, in the operator's words. */
  name: string;
  rights: ("run" | "sandboxes" | "tools" | "approvals" | "admin")[];
  /** Seconds since 1970. */
  created: number;
  /** Seconds since 1970; `null` if it does not expire. */
  expires: number | null;
  quota: Quota;
  /** The tenant whose keys share what they make. */
  tenant: string | null;
  revoked: boolean;
}

/**
 * Keys of the API, for the server's own user and keys with the right `admin`. Others get `PermissionDenied`. `ringfence keys create` makes
 * one, on the server's machine. To replace a key, make another one of its tenant, and revoke the old one.
 */
export interface Keys {
  /** Lists the keys, the oldest first, with revoked and expired ones. */
  list(): Promise<KeyInfo[]>;
  /**
   * Revokes a key: it opens nothing any more, and what is open in its name ends within a second. Its sandboxes stay. A key that is revoked
   * already stays so. Throws `NotFound` if there is none.
   */
  revoke(keyId: string): Promise<void>;
  /**
   * Removes a key that is revoked or has expired and, unless other keys of its tenant are left, its sandboxes, snapshots, sessions, stored
   * runs and usage. The audit log stays. Throws `Conflict` if the key is in force or requests of it are still running, `NotFound` if there
   * is none.
   */
  remove(keyId: string): Promise<void>;
}

/** Sums of what was used. */
export interface UsageFigures {
  /** Programs of runs and batches, calls of tools, and in sandboxes processes and pieces of code, as they begin. */
  runs: number;
  /** Processor time, in seconds. A run whose time nobody measures counts with its duration on all of its processors. */
  cpuSeconds: number;
  /** Memory in use times its duration, in GiB-seconds. */
  memoryGibSeconds: number;
  /** Bytes that runs and tools sent to hosts and received from them. */
  egressBytes: number;
}

/** The usage of a key, or of all keys of its tenant together: do not add up those of one tenant. */
export interface KeyUsage {
  /** Id of the key; `RINGFENCE_API_KEY` for the one of the server's environment. */
  id: string;
  /** Its purpose, in the operator's words; `null` for the key of the server's environment. */
  name: string | null;
  tenant?: string;
  /** Since midnight (UTC). */
  today: UsageFigures;
  /** Since the key, or the first of its tenant's, was made, or since the server's records begin. */
  total: UsageFigures;
  quota: Quota;
  /** Sandboxes that the key, or its tenant, has now. */
  sandboxes?: number;
}

/** The usage of the keys that the caller may see. */
export interface UsageReport {
  keys: KeyUsage[];
  /** Time at which `today` and the quotas begin anew: the next midnight (UTC, RFC 3339). */
  resetsAt: string;
}

/**
 * A record, with the names of the log: that of a use has `tool`, another one of the last five members. Programs and clients chose names and
 * arguments: do not trust them.
 */
export interface AuditRecord {
  sequence?: number;
  /** RFC 3339 (UTC). */
  time?: string;
  /** `hash` of the record before it. */
  previous?: string;
  /** SHA-256 of its line up to here. */
  hash?: string;
  /** `client` is for example the id of a key. */
  who?: { scope: string; session: string | null; surface: string; client: string | null };
  /** Name of the tool or operation. */
  tool?: string;
  /** Without credentials; long texts are cut. */
  arguments?: unknown;
  /** SHA-256 of the whole arguments. */
  arguments_digest?: string;
  /** Hosts that it tried to reach, with the results. */
  attempts?: string[];
  judgement?: string;
  decision?: "allowed" | "refused";
  /** `begun` is that of a command on the host. */
  outcome?: "answered" | "failed" | "cancelled" | "begun";
  /** Type of the error. */
  error?: string | null;
  /** Time that the use took, in microseconds. */
  duration_micros?: number;
  /** SHA-256 of the answer's text, or of a run's captured standard output. */
  result_digest?: string | null;
  /** An answer that a person gave. */
  answer?: Record<string, unknown>;
  /** A count of refused uses that have no record of their own. */
  refused?: Record<string, unknown>;
  /** The removal of older records: those up to `last`. */
  removed?: Record<string, unknown>;
  /** A line that was cut off because its writer died. */
  repair?: Record<string, unknown>;
  /** A line that is no record. */
  damaged?: string;
}

/** Findings of a check of the log. The numbers and `head` are `null` if it is broken. */
export interface AuditVerification {
  /** `false` if a record was changed or is missing. */
  intact: boolean;
  /** Number of records. */
  records: number | null;
  /** Sequence number of the oldest kept record. */
  first: number | null;
  /** The newest record as `SEQUENCE:HASH`. Noted elsewhere, it later shows if records were removed or replaced. */
  head: string | null;
  /** Sequence number of the newest record that was removed to make room; `null` if none was. */
  removed: number | null;
  /** Number of refused uses that are counted in a common record. */
  counted: number | null;
  /** Number of records that say that a torn line was cut off. */
  repairs: number | null;
  /** Bytes of a record whose writer died. */
  tornBytes: number | null;
  /** The first break. `line` counts from 1; `sequence` is the expected number, if it is known. */
  broken: { what: string; file: string | null; line: number | null; sequence: number | null } | null;
}

/**
 * The audit log, for the server's own user and keys with the right `admin`. Others get `PermissionDenied`. With `host`, it is the log of
 * commands on the host and of people's answers.
 */
export interface Audit {
  /**
   * Returns the newest records, the newest first: 100, or `limit`, which is 1000 at most. `tenant`, `client` (the id of a key), `tool` and
   * `outcome` choose among the newest 1000.
   */
  list(options?: {
    limit?: number;
    tenant?: string;
    client?: string;
    tool?: string;
    outcome?: string;
    host?: boolean;
  }): Promise<AuditRecord[]>;
  /**
   * Checks every record, and that none is missing. A broken log throws nothing: `intact` says so. `head` is one that an earlier check
   * returned, and must still be in the log.
   */
  verify(options?: { head?: string; host?: boolean } & Cancellable): Promise<AuditVerification>;
}
