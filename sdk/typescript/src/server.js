// Starts a server of this user if none runs, and keeps it while this process lives.
//
// The server is started with `--while-used FILE`: it ends once no process locks (flock) that file. Node.js has no flock, so
// the program locks a file that is open here: such a lock is one of the open file, and the kernel drops it as the last process
// with it ends, however that ends. The program itself ends at once.

import { spawn } from "node:child_process";
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { dirname, join } from "node:path";
import process from "node:process";
import { setTimeout as elapsed } from "node:timers/promises";

import { ServerUnavailable } from "./errors.js";
import { PACKAGE, binary } from "./program.js";
import { checkPrivate, hasSocket, privateSocket } from "./socket.js";

/** Milliseconds until a server must listen. */
const START = 30_000;
/** Bytes of a server's messages in an error. */
const TAIL = 4096;
const OURS = ["RINGFENCE_API_URL", "RINGFENCE_API_KEY", "RINGFENCE_BIN"];

/** Locks that this process holds until it ends, by their path. */
const used = new Map();
let last = Promise.resolve();

/** Returns the path of the private socket of a server that listens; starts one if there is none. */
export function ensure() {
  const mine = last.then(found);
  // One start at a time; a failure is the caller's alone.
  last = mine.catch(() => {});
  return mine;
}

async function found() {
  if (process.platform !== "linux") throw new ServerUnavailable("servers run on Linux alone", "set RINGFENCE_API_URL");
  const path = privateSocket();
  const directory = dirname(path);
  mkdirSync(directory, { mode: 0o700, recursive: true });
  checkPrivate(directory);
  const program = binary();
  // Without the program it may be one that somebody keeps.
  if (program === undefined && (await listens(path))) return path;
  if (program === undefined) {
    throw new ServerUnavailable(
      "no server runs, and there is no program `ringfence` to start one",
      `install ${PACKAGE}, put \`ringfence\` on PATH, or set RINGFENCE_API_URL`,
    );
  }
  const lock = join(directory, "clients.lock");
  await use(program, lock);
  if (!(await listens(path))) await start(program, path, lock);
  return path;
}

/** Holds the shared lock until this process ends. Waits for a server that is just ending. */
async function use(program, lock) {
  if (used.has(lock)) return;
  const file = openLock(lock);
  try {
    await flock(program, file, []);
  } catch (error) {
    closeSync(file);
    throw error;
  }
  used.set(lock, file);
}

const openLock = (path) => openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);

/** Locks an open file, which keeps the lock until it is closed. */
async function flock(program, file, options) {
  const { status, output } = await new Promise((resolve, reject) => {
    const child = spawn(program, ["lock-stdin", ...options], { cwd: "/", stdio: [file, "ignore", "pipe"] });
    let output = "";
    child.stderr.setEncoding("utf8").on("data", (text) => (output = (output + text).slice(-TAIL)));
    child.on("error", (error) => reject(new ServerUnavailable(`cannot start ${program}: ${error.message}`)));
    child.on("close", (status) => resolve({ status, output }));
  });
  if (status !== 0) {
    throw new ServerUnavailable(`${program} cannot lock a file: ${output.trim()}`, "it must have the version of this package");
  }
}

async function start(program, path, lock) {
  const starting = openLock(join(dirname(path), "starting.lock"));
  try {
    await flock(program, starting, ["--exclusive"]);
    // Another process may have started one meanwhile.
    if (!(await listens(path))) await launch(program, path, lock);
  } finally {
    closeSync(starting);
  }
}

async function launch(program, path, lock) {
  const directory = mkdtempSync(join(dirname(path), "start-"));
  const log = join(directory, "log");
  const file = openSync(log, "a", 0o600);
  try {
    // A session of its own: Ctrl-C is for the program, which may want to clean up. Neither the working directory nor a project's
    // configuration there decide how a server works that others share.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !OURS.includes(name)));
    const server = spawn(program, ["serve", "--while-used", lock], { cwd: "/", env, stdio: ["ignore", file, file], detached: true });
    server.unref();
    let failure;
    server.on("error", (error) => (failure = `cannot start ${program}: ${error.message}`));
    // It may end at any time later, when its log is gone.
    const ended = () => (failure ??= `the server ended at its start: ${tail(log)}`);
    server.once("exit", ended);
    const deadline = Date.now() + START;
    while (!(await listens(path))) {
      if (failure) throw new ServerUnavailable(failure);
      if (Date.now() > deadline) {
        server.kill("SIGKILL");
        throw new ServerUnavailable(`the server does not listen after ${START / 1000} s: ${tail(log)}`);
      }
      await elapsed(5);
    }
    server.off("exit", ended);
  } finally {
    closeSync(file);
    rmSync(directory, { recursive: true, force: true });
  }
}

function tail(log) {
  return readFileSync(log).subarray(-TAIL).toString().trim() || "it printed nothing";
}

/** Resolves to `true` if a server accepts connections at a socket that no other user could have put there. */
export async function listens(path) {
  if (!hasSocket(path, true)) return false;
  return await new Promise((resolve, reject) => {
    const probe = connect(path);
    probe.on("connect", () => {
      probe.destroy();
      resolve(true);
    });
    probe.on("error", (error) => {
      if (["ECONNREFUSED", "ENOENT"].includes(error.code)) resolve(false);
      else reject(new ServerUnavailable(`cannot connect to ${path}: ${error.message}`));
    });
  });
}
