/// <reference lib="esnext.disposable" />

import type { Audit, Keys, UsageReport } from "./administration.js";
import type { Approvals, Images, Runs, SnapshotInfo, Snapshots } from "./operations.js";

export * from "./administration.js";
export * from "./operations.js";

/** Seconds, never milliseconds, or a text such as `"500ms"` or `"5m"`. */
export type Time = number | string;
/** Bytes, or a text such as `"512MiB"`. */
export type Size = number | string;
/** A language; the short names are the command line's. */
export type Language = "python" | "bash" | "javascript" | "py" | "python3" | "sh" | "shell" | "js" | "node";
/** A line for the shell, or a program and its arguments. */
export type Command = string | readonly string[];
/** Bytes, or text in UTF-8. */
export type Piece = string | Uint8Array | ArrayBuffer;
/** Content of an upload, whole or in pieces, such as a stream of Node.js. `InvalidArguments` refuses anything else. */
export type Data = Piece | Blob | ReadableStream<Piece> | AsyncIterable<Piece> | Iterable<Piece>;
export type Outcome = "exited" | "timed_out" | "memory_exceeded" | "signalled" | "blocked" | "cancelled" | "unknown";

export declare const VERSION: string;

export interface Connection {
  /** Address of a server; RINGFENCE_API_URL by default, else this user's private socket, where a server is started if none runs. */
  url?: string;
  /** RINGFENCE_API_KEY by default. */
  apiKey?: string;
  /** Path of a server's Unix socket. */
  socket?: string;
  /** Send the key unencrypted to another machine. */
  plainHttp?: boolean;
  /** `false` never starts a server. */
  autostart?: boolean;
}

/** Aborting cancels what was asked for: a command is killed, code is interrupted. */
export interface Cancellable {
  signal?: AbortSignal;
}

export interface Printed {
  /** A promise that it returns is awaited before more output is read. */
  onStdout?: (text: string) => unknown;
  onStderr?: (text: string) => unknown;
}

export interface RunOptions extends Printed, Cancellable {
  language?: Language;
  timeout?: Time;
  stdin?: string;
  files?: Record<string, string>;
  runtime?: string;
}

export interface RunResult {
  stdout: string;
  stderr: string;
  exitCode: number;
  duration: number;
  meta: { outcome: Outcome } & Record<string, unknown>;
  /** Set if output was left out of `stdout` or `stderr`. */
  truncated: boolean;
  /** What the server did otherwise than asked, such as a shorter time limit. */
  warnings: string[];
}

export interface BatchItem {
  index: number;
  result?: RunResult;
  error?: RingfenceError;
}

export interface Tool {
  name: string;
  title: string;
  description: string;
  inputSchema: Record<string, unknown>;
  outputSchema?: Record<string, unknown>;
}

/** Events, to be read in one loop. Leaving the loop closes it. */
export interface EventStream<T> extends AsyncIterableIterator<T> {
  /** Closes the stream, also while somebody waits for the next event: the loop ends. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** An event in the life of a sandbox. */
export interface LifeEvent {
  /** At the end `expired`, `removed` or `ended`; `lost` in place of events that came while the reader was 256 behind. */
  type:
    | "created"
    | "paused"
    | "resumed"
    | "expiry_changed"
    | "forked"
    | "snapshot_created"
    | "expired"
    | "removed"
    | "ended"
    | "lost";
  /** RFC 3339. Absent if `lost`, as `sandbox` is. */
  time?: string;
  /** Id of the sandbox. */
  sandbox?: string;
  name?: string;
  /** Cause of an end, or of a pause that nobody asked for. */
  reason?: string;
  expiresAt?: string;
  /** Ids of the sandboxes that were made of it. */
  copies?: string[];
  /** Id of the snapshot. */
  snapshot?: string;
  /** Number of lost events. */
  events?: number;
}

export declare class Client {
  constructor(options?: Connection);
  readonly approvals: Approvals;
  readonly audit: Audit;
  readonly images: Images;
  readonly keys: Keys;
  readonly runs: Runs;
  readonly snapshots: Snapshots;
  /**
   * Returns what the key, or its tenant, has used today (UTC) and in all, and its quotas. At the private socket, and with the right `admin`,
   * it is that of all keys. The private socket's own use is not counted.
   */
  usage(): Promise<UsageReport>;
  /** Follows the lives of all your sandboxes. The loop ends with `close()` alone: throws `ServerGone` if the server ends. */
  sandboxEvents(options?: Cancellable): Promise<EventStream<LifeEvent>>;
  /** Runs a program in a fence of its own. */
  run(code: string, options?: RunOptions): Promise<RunResult>;
  /** Runs many programs, and yields the end of each on arrival. Leaving the loop cancels the rest. */
  batch(
    programs: Iterable<string | ({ code: string } & Omit<RunOptions, keyof Printed | "signal">)>,
    options?: Cancellable,
  ): AsyncGenerator<BatchItem, void, undefined>;
  tools(): Promise<Tool[]>;
  callTool(
    name: string,
    args?: Record<string, unknown>,
    options?: Cancellable,
  ): Promise<{ text: string; structured: unknown }>;
}

/** Runs a program once. */
export declare function run(code: string, options?: RunOptions): Promise<RunResult>;

export interface SandboxOptions extends Connection, Cancellable {
  client?: Client;
  name?: string;
  timeout?: Time;
  memory?: Size;
  disk?: Size;
  cpus?: number;
  pids?: number;
  env?: Record<string, string>;
  metadata?: Record<string, string>;
  allowedHosts?: string[];
  runtime?: "local" | "docker" | "podman";
  /** Reference or digest of an image that `ringfence image ls` lists. */
  image?: string;
  /** Let programs listen on TCP ports. */
  ports?: boolean;
  /** Key of kept packages, which `ringfence packages ls --json` lists, or a list: one of Python's packages, one of npm's. */
  packages?: string | string[];
  /** Id or name of a snapshot whose files it begins with. */
  snapshot?: string;
  /** `box` makes its programs root over users and a root file system of their own; `run` by default. */
  fence?: "run" | "box";
  /** The event at its expiry; `kill` by default. */
  onExpiry?: "kill" | "pause";
}

export interface SandboxInfo {
  id: string;
  name?: string | null;
  runtime: string;
  state: string;
  /** Absent in a container. */
  fence?: "run" | "box" | null;
  /** `host`, or the reference of the image whose files it has. */
  image: string;
  imageDigest?: string | null;
  onExpiry: "kill" | "pause";
  createdAt: string;
  expiresAt: string;
  metadata: Record<string, string>;
  resources: Resources;
  allowedHosts: string[];
  ports: boolean;
  isolation: Record<string, unknown> | null;
  processes: number;
  contexts: number;
  /** Packages of its interpreters, with their versions. Absent without any. */
  packages?: string[];
  /** Remarks about layers, limits and packages that it lacks. Absent without any. */
  warnings?: string[];
}

/** Limits and usage of a sandbox. A limit that does not hold, and a figure that nobody measures, is `null`. */
export interface Resources {
  memoryLimit: number | null;
  cpuLimit: number | null;
  pidsLimit: number | null;
  diskLimit: number;
  memoryBytes: number | null;
  peakMemoryBytes: number | null;
  cpuSeconds: number | null;
  pids: number | null;
  /** Bytes of all files together, in whole pages; `null` in a container. */
  diskBytes: number | null;
}

export interface EntryInfo {
  name: string;
  path: string;
  type: "file" | "directory" | "symlink" | "fifo" | "socket" | "device";
  size: number;
  mode: number;
  uid: number;
  gid: number;
  /** Nanoseconds since 1970, as exact as a number is. */
  modified: number;
  target?: string | null;
}

export interface FileChange {
  type: string;
  /** Relative to the watched directory. */
  path: string;
}

/** A directory that was copied into a sandbox. */
export interface UploadedDir {
  entries: number;
  bytes: number;
  /** Number of entries that the sandbox left out. */
  skipped: number;
  /** The first of them. */
  named: { path: string; reason: string }[];
}

/** A directory that was copied out of a sandbox. */
export interface DownloadedDir {
  entries: number;
  bytes: number;
  /** Paths that were not copied: symbolic links that could lead out of the directory, and `protected`. */
  leftOut: string[];
  /** Those that programs of this machine execute or obey, such as `.git`, with all below, and other hard links to such files. */
  protected: string[];
}

export interface Files {
  /** Stores text, bytes, or pieces of bytes. Readers see the old content or the new one. */
  write(path: string, data: Data, options?: { mode?: number } & Cancellable): Promise<EntryInfo>;
  read(path: string, options?: { format?: "text" } & Cancellable): Promise<string>;
  read(path: string, options: { format: "bytes" } & Cancellable): Promise<Uint8Array>;
  /** Yields the content in pieces, for large files. */
  stream(path: string, options?: { offset?: number; length?: number } & Cancellable): AsyncGenerator<Uint8Array>;
  /**
   * Copies the content to a local file, which must not exist. It is made once the content is complete. Returns the number of bytes.
   */
  download(path: string, to: string | URL, options?: Cancellable): Promise<number>;
  /** Yields a tree as a tar archive. */
  archive(path?: string, options?: Cancellable): AsyncGenerator<Uint8Array>;
  /** Unpacks a tar archive into a directory, which is made if there is none. */
  extract(path: string, data: Data, options?: Cancellable): Promise<UploadedDir>;
  /**
   * Copies what a local directory has into a directory, which is made if there is none. Links stay links, and no other is followed than
   * `source` itself; on other systems than Linux, one that replaces a directory meanwhile is. FIFOs, sockets and devices are left out.
   * Throws `LimitExceeded` if the sandbox has no room; what has arrived stays.
   */
  uploadDir(source: string | URL, path: string, options?: Cancellable): Promise<UploadedDir>;
  /**
   * Copies a directory to a local one, which must not exist. It is made once all is there. A sandbox's programs wrote what it has: look at
   * it before a program of yours acts on it. Left out, and named, are links that could lead out of it and, without `includeProtected`,
   * what programs of this machine execute or obey, such as `.git`, `.envrc`, `.vscode` and `__pycache__`. What the sandbox cannot archive
   * is missing: FIFOs, sockets, devices, what it may not read, and what is below 128 levels. A file that becomes shorter meanwhile ends in
   * zeros. `maxSize` bytes come at most, 4 GiB by default.
   */
  downloadDir(path: string, to: string | URL, options?: { maxSize?: Size; includeProtected?: boolean } & Cancellable): Promise<DownloadedDir>;
  /**
   * Lists a directory, page after page. Throws `LimitExceeded` if there are more levels than a list has, or if the server has no pages
   * and more entries than one answer holds.
   */
  list(path?: string, options?: { depth?: number }): Promise<EntryInfo[]>;
  /**
   * Lists a page of a directory, at most 10,000 entries. `after` is `next` of the page before. `complete`: nothing is missing behind these
   * but entries of directories that cannot be read.
   */
  listPage(
    path?: string,
    options?: { depth?: number; after?: string },
  ): Promise<{ entries: EntryInfo[]; complete: boolean; next?: string }>;
  stat(path: string): Promise<EntryInfo>;
  exists(path: string): Promise<boolean>;
  makeDir(path: string): Promise<void>;
  move(from: string, to: string): Promise<EntryInfo>;
  copy(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Resolves once the directory is watched, to its changes from then on. */
  watch(path?: string, options?: { recursive?: boolean } & Cancellable): Promise<AsyncGenerator<FileChange>>;
}

export interface ProcessOptions {
  cwd?: string;
  env?: Record<string, string>;
  timeout?: Time;
  /** A name of the sandbox's /etc/passwd or a number, for sandboxes with the fence `box`. */
  user?: string;
}

export interface CommandResult {
  stdout: string;
  stderr: string;
  exitCode: number;
  outcome: Outcome;
  truncated: boolean;
  /** Seconds that it ran; absent from a handle, for the server keeps no time of a process's end. */
  duration?: number;
  cpuSeconds?: number | null;
  peakMemoryBytes?: number | null;
}

export interface WaitOptions extends Printed, Cancellable {
  /** Characters kept of each stream, or a text such as `"10KiB"`; 1 MiB by default. */
  maxOutput?: Size;
  /** Throw `CommandFailed` for a status other than 0. */
  check?: boolean;
}

export interface ProcessInfo {
  pid: number;
  command: string[];
  cwd: string;
  terminal: boolean;
  startedAt: string;
  end?: { exitCode: number; outcome: Outcome } | null;
}

export interface CommandHandle {
  readonly pid: number;
  info(): Promise<ProcessInfo>;
  stream(options?: Cancellable): AsyncGenerator<{ stream: "stdout" | "stderr"; data: Uint8Array }>;
  wait(options?: WaitOptions): Promise<CommandResult>;
  kill(): Promise<boolean>;
  sendSignal(signal: number | string): Promise<void>;
  /**
   * Sends input, as fast as the process reads. `end` closes the input after it; in a terminal, send `"\x04"` for it. Calls take turns:
   * input arrives in their order. Throws `Conflict` if the input is closed or the process has ended.
   */
  sendStdin(data: Data, options?: { end?: boolean } & Cancellable): Promise<void>;
  /** Closes the input. A program in a terminal does not see that: send `"\x04"` there. */
  closeStdin(): Promise<void>;
  /** Changes the size of its terminal, in characters. Throws `InvalidArguments` beyond 65535. */
  resize(columns: number, rows: number): Promise<void>;
}

export interface Commands {
  /** Runs a command to its end. A status other than 0 is a result. */
  run(command: Command, options?: ProcessOptions & WaitOptions): Promise<CommandResult>;
  /** Starts a command, which runs on until it ends, is killed, or its sandbox ends. */
  start(command: Command, options?: ProcessOptions & { stdin?: boolean }): Promise<CommandHandle>;
  connect(pid: number): Promise<CommandHandle>;
  list(): Promise<ProcessInfo[]>;
  kill(pid: number): Promise<boolean>;
}

export interface Pty {
  /**
   * Starts a command, by default `bash`, in a terminal of `columns` and `rows` characters, 80 and 24 by default. All its output is `stdout`;
   * keys go to `sendStdin`. It runs on without the handle: `commands.connect(pid)` returns another one. Throws `InvalidArguments` if the size
   * is beyond 65535, and, as `commands.start` does, `NotFound` if there is no such program or user.
   */
  create(
    options?: ProcessOptions & { command?: Command; columns?: number; rows?: number },
  ): Promise<CommandHandle>;
}

export interface Context {
  id: string;
  language: string;
  cwd: string;
  /** Its user, if it is not the sandbox's. */
  user?: string;
  createdAt: string;
  executions: number;
}

export interface Contexts {
  /**
   * Starts an interpreter. `user` is a name of the sandbox's /etc/passwd or a number, for sandboxes with the fence `box`. Throws
   * `NotFound` if there is no such user, `NotSupported` in another sandbox.
   */
  create(options?: {
    language?: Language | "typescript" | "ts";
    cwd?: string;
    user?: string;
  }): Promise<Context>;
  list(): Promise<Context[]>;
  remove(context: string | Context): Promise<void>;
  interrupt(context: string | Context): Promise<void>;
}

/** Something that code showed, or its last value. A guest wrote it: do not trust it. */
export interface Result {
  isMainResult: boolean;
  text?: string;
  html?: string;
  markdown?: string;
  svg?: string;
  latex?: string;
  javascript?: string;
  json?: unknown;
  /** A data frame's columns by name, up to 1,000 rows. */
  data?: unknown;
  /** Elements of a figure, as `docs/guide/sessions.md` describes them. */
  chart?: unknown;
  png?: Uint8Array;
  jpeg?: Uint8Array;
  pdf?: Uint8Array;
  /** Data by media type, as the server sent them. */
  raw: Record<string, unknown>;
  omitted: Record<string, number>;
}

export interface Execution {
  results: Result[];
  /** The text of the last expression's value. */
  text?: string;
  logs: { stdout: string[]; stderr: string[] };
  /** The reason for which the code did not reach its end: an exception, or an outcome such as `timed_out`. */
  error?: { name: string; value: string; traceback: string };
  executionCount: number;
  outcome: Outcome;
  exitCode: number;
  duration: number;
  truncated: boolean;
  interrupted: boolean;
  contextEnded: boolean;
  warnings: string[];
}

export interface CodeOptions extends Printed, Cancellable {
  language?: Language | "typescript" | "ts";
  context?: string | Context;
  /** As `contexts.create` takes it. Each user has default interpreters of its own; with `context`, it must be that one's. */
  user?: string;
  timeout?: Time;
  onResult?: (result: Result) => unknown;
}

/** An address of this machine at which a port of a sandbox answers. */
export interface ForwardedPort {
  readonly host: string;
  readonly port: number;
  /** The address for programs that speak HTTP. */
  readonly url: string;
  /** Ends the connections, and listens no more. Throws the first value that `onError` has thrown. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** TCP ports on which programs of a sandbox with `ports: true` listen. */
export interface Ports {
  /**
   * Brings a port to an address of this machine, until `close()`. `host` is an address of this machine alone, 127.0.0.2 by default, but
   * not 127.0.0.1, where browsers would send the sandbox the console's cookies; `localPort` is a free one by default. Every user of this
   * machine can connect there. 16 connections are passed on at once, 48 more wait, and those beyond are reset. One to a port where
   * nothing listens is reset, and one whose client has sent its end once the program has sent nothing for 60 s. `onError` is called with
   * the reason, after the reset.
   */
  forward(
    port: number,
    options?: { host?: string; localPort?: number; onError?: (error: RingfenceError) => unknown },
  ): Promise<ForwardedPort>;
}

export declare class Sandbox {
  private constructor();
  readonly sandboxId: string;
  readonly files: Files;
  readonly commands: Commands;
  readonly pty: Pty;
  readonly contexts: Contexts;
  readonly ports: Ports;
  static create(options?: SandboxOptions): Promise<Sandbox>;
  /** Returns the sandbox with this id or name. */
  static connect(sandboxId: string, options?: Connection & { client?: Client }): Promise<Sandbox>;
  static list(
    options?: Connection & { client?: Client; metadata?: Record<string, string> },
  ): Promise<SandboxInfo[]>;
  /** Lists a page of the sandboxes, the oldest first: at most `limit` (100), of 1000. `after` is `next` of the page before. */
  static listPage(
    options?: Connection & { client?: Client; metadata?: Record<string, string>; limit?: number; after?: string },
  ): Promise<{ sandboxes: SandboxInfo[]; next?: string }>;
  kill(): Promise<boolean>;
  getInfo(): Promise<SandboxInfo>;
  isRunning(): Promise<boolean>;
  setTimeout(timeout: Time): Promise<SandboxInfo>;
  /**
   * Replaces the hosts that programs may reach; without any, they reach none. Connections to other hosts are closed. Programs that
   * run keep their variables: those that began without hosts find the proxy when they start anew. Throws `NotSupported` if the
   * sandbox was created without `allowedHosts` and `ports`.
   */
  setNetwork(allowedHosts: string[]): Promise<SandboxInfo>;
  /**
   * Stops all processes: they use no processor, and keep their memory. Commands, code and files are refused meanwhile. The sandbox's
   * time goes on. Throws `NotSupported` where the server has no control group with a freezer.
   */
  pause(): Promise<SandboxInfo>;
  /** Continues the processes of a paused sandbox. */
  resume(): Promise<SandboxInfo>;
  /**
   * Copies the files into new sandboxes, 16 at most, with the same limits, lifetime, environment, metadata and network. They have no
   * processes, contexts or variables of this one. A single one can have a `name`. Throws `Conflict` if the name is taken or the
   * sandbox paused.
   */
  fork(options?: { count?: number; name?: string }): Promise<Sandbox[]>;
  /**
   * Keeps the files on the server's disk, until `client.snapshots.remove`. Throws `Conflict` if the name is taken or the sandbox paused,
   * `LimitExceeded` if there are too many snapshots, or they are too large.
   */
  snapshot(options?: { name?: string }): Promise<SnapshotInfo>;
  /**
   * Resolves once the sandbox's life is followed, to its events from then on. The loop ends with the sandbox, whose last event is
   * `expired`, `removed` or `ended`. Throws `ServerGone` if the server ends before.
   */
  events(options?: Cancellable): Promise<EventStream<LifeEvent>>;
  /** Runs code in an interpreter, which keeps what it defines. */
  runCode(code: string, options?: CodeOptions): Promise<Execution>;
  /** Ends the sandbox: `await using sandbox = await Sandbox.create()`. */
  [Symbol.asyncDispose](): Promise<void>;
}

export declare class RingfenceError extends Error {
  readonly hint: string;
}
/** No server answers at the address. */
export declare class ServerUnavailable extends RingfenceError {}
/** The connection broke before the answer was whole. */
export declare class ServerGone extends RingfenceError {}
/** The server lacks a route, or answers in an unknown form. */
export declare class IncompatibleServer extends RingfenceError {}
/** The server refused a request, or failed. */
export declare class ApiError extends RingfenceError {
  readonly type: string;
  readonly status: number;
  readonly requestId?: string;
  readonly retryAfter?: number;
}
/** A mistake in a call: found here before anything was sent (`status` is 0), or by the server. */
export declare class InvalidArguments extends ApiError {}
export declare class Unauthenticated extends ApiError {}
export declare class PermissionDenied extends ApiError {}
export declare class Blocked extends ApiError {}
export declare class Rejected extends ApiError {}
export declare class NotFound extends ApiError {}
export declare class MethodNotAllowed extends ApiError {}
export declare class Conflict extends ApiError {}
/** The first request with this `Idempotency-Key` has not ended. */
export declare class InProgress extends Conflict {}
export declare class LimitExceeded extends ApiError {}
export declare class Busy extends ApiError {}
export declare class NotSupported extends ApiError {}
export declare class Cancelled extends ApiError {}
export declare class InternalError extends ApiError {}
export declare class RuntimeUnavailable extends ApiError {}
export declare class DeadlineExceeded extends ApiError {}
export declare class ApprovalTimeout extends ApiError {}
export declare class CommandFailed extends RingfenceError {
  readonly result: CommandResult;
}
export declare const BY_TYPE: Record<string, typeof ApiError>;
