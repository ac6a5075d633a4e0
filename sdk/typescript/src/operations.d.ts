import type { Cancellable, EventStream, Outcome, RunResult } from "./index.js";

/** A question to a person. Times are milliseconds since 1970, by the server's clock. */
export interface Approval {
  id: string;
  kind: "command" | "soft_timeout" | "skill";
  /** The question, with escapes in place of invisible characters. An agent wrote part of it: do not trust it. */
  text: string;
  /** The same in pieces, which tell an escape from text that looks like one. */
  pieces: ({ plain: string } | { escape: string })[];
  /** Facts to decide by. */
  reasons: string[];
  /** Times for which an approval can hold. */
  remember: ("once" | "session" | "uses" | "always")[];
  /** SHA-256 of the text, which an answer names. */
  digest: string;
  /** Owner of the call that asks. */
  scope: string;
  created: number;
  expires: number;
  state: "pending" | "approved" | "rejected" | "expired" | "abandoned";
  /** From 0, only reads, to 10, destroys irreversibly; `null` if nobody scored it. */
  risk?: number | null;
  /** A warning of characters that resemble plain letters. */
  foreign?: string | null;
  session?: string | null;
  chat?: string | null;
  /** Name of who answered: the id of a key, or the operator's name for a person. */
  by?: string | null;
  ended?: number | null;
}

/** A question that waits, or one that waits no longer. */
export type ApprovalEvent =
  | { type: "question"; id: string; question: Approval; state?: undefined; by?: undefined }
  | { type: "over"; id: string; question?: undefined; state?: Approval["state"]; by?: string };

/** Questions that wait for a person: all of them at the private socket, those of its tenant for a key with the right `approvals`. */
export interface Approvals {
  /** Lists the questions that wait, the oldest first. With `past`, the newest that wait no longer follow, the newest first. */
  list(options?: { past?: boolean }): Promise<Approval[]>;
  /** Returns a question, waiting or past. Throws `NotFound` if there is none, or it is another tenant's. */
  get(approvalId: string): Promise<Approval>;
  /**
   * Answers a question whose text somebody, or this program, has read. `remember` is one of the question's; of a denial, `once` or
   * `session`; `{ uses: 5 }` is this time and five more. Throws `Conflict` if it was answered before or waits no longer,
   * `InvalidArguments` if the answer cannot hold for that long.
   */
  answer(
    question: Approval,
    approved: boolean,
    options?: { remember?: "once" | "session" | "always" | { uses: number } },
  ): Promise<void>;
  /**
   * Follows questions. Those that wait come first. While the stream is open, somebody counts as there to be asked. The loop ends with
   * `close()` alone: throws `ServerGone` if the server ends, and `LimitExceeded` if 16 streams are open.
   */
  events(options?: Cancellable): Promise<EventStream<ApprovalEvent>>;
}

/** A stored run in a list. */
export interface RunSummary {
  /** `meta.artifact` of its result. */
  id: string;
  /** Time of the request (UTC). */
  time: string;
  language: string;
  outcome: Outcome;
  exitCode: number;
}

/** A stored run. Values that look like credentials were removed before it was stored. */
export interface StoredRun {
  id: string;
  /** Time of the request (UTC). */
  time: string;
  language: string;
  code: string;
  result: RunResult;
}

/**
 * Stored runs: all of them at the private socket, those of its tenant for a key with the right `run`. A server stores failed ones
 * alone, unless its operator sets SANDBOX_STORE_CODE.
 */
export interface Runs {
  /**
   * Returns a page of runs, the newest first: 50, or `limit`, which is 100 at most, and fewer if their records are long. `next` is
   * `before` of the page with older ones.
   */
  list(options?: { limit?: number; before?: string }): Promise<{ runs: RunSummary[]; next?: string }>;
  /** Returns a run with its code and output, by its id: `meta.artifact` of its result. Throws `NotFound` if there is none. */
  get(runId: string): Promise<StoredRun>;
}

/** An image of which sandboxes can be made. */
export interface ImageInfo {
  references: string[];
  /** That of the image's configuration. */
  digest: string;
  architecture: string;
  layers: number;
  /** Time at which it was unpacked, in seconds since 1970. */
  unpacked: number;
  /** Bytes of its files, number of entries, and of those that were left out or changed. */
  content: { bytes: number; entries: number; special: number; setIds: number; attributes: number };
  process: { Env: string[]; WorkingDir: string; User: string; Entrypoint: string[]; Cmd: string[] };
}

/** Images of the server, for its own user and keys with the right `admin`. Others get `PermissionDenied`. */
export interface Images {
  /** Lists the images, by their first reference. */
  list(): Promise<ImageInfo[]>;
  /**
   * Pulls an image from its registry, by a reference as `docker pull` takes it. `onProgress` is called at each percent of a layer;
   * layers count from 1, `received` and `size` are bytes. Throws `InvalidArguments` if the registry has no such image, or it is none,
   * `Busy` while two others are being pulled, `LimitExceeded` if there is no room.
   */
  pull(
    reference: string,
    options?: {
      onProgress?: (progress: { layer: number; layers: number; received: number; size: number }) => unknown;
    } & Cancellable,
  ): Promise<{ image: ImageInfo; wasThere: boolean }>;
  /**
   * Removes a reference or, by a digest, all references of an image. Returns what becomes of its files: they are removed, still named
   * by another reference, or in use by a sandbox or run, after which they go. Throws `NotFound` if there is no such image.
   */
  remove(image: string): Promise<"removed" | "still_named" | "in_use">;
}

/** The files of a sandbox, kept on the server's disk. Sizes and limits are bytes. */
export interface SnapshotInfo {
  id: string;
  name?: string | null;
  /** Id of the sandbox that it was made of. */
  sandbox: string;
  createdAt: string;
  size: number;
  /** That of the sandbox, and of those made of the snapshot unless they ask for another. */
  memoryLimit: number;
  diskLimit: number;
  /** Number of cores; servers that do not keep it send none. */
  cpuLimit?: number | null;
  /** Number of files that could not be kept, such as sockets. */
  skipped: number;
  /** What the sandbox was created with and the snapshot has not, such as `packages`. Absent if there is nothing. */
  notCopied?: string[];
  fence?: "run" | "box" | null;
  /** Image on which the sandbox was made. */
  image?: { reference: string; digest: string } | null;
}

/** Kept files of sandboxes. `sandbox.snapshot()` makes one, and `Sandbox.create({ snapshot })` begins with its files. */
export interface Snapshots {
  /** Lists the snapshots, the oldest first. */
  list(): Promise<SnapshotInfo[]>;
  /** Returns the snapshot with this id or name. Throws `NotFound` if there is none. */
  get(snapshotId: string): Promise<SnapshotInfo>;
  /** Removes the snapshot with this id or name; sandboxes that were made of it stay. Throws `NotFound` if there is none. */
  remove(snapshotId: string): Promise<void>;
}
