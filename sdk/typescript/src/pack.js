// Packs a directory of this machine into a tar archive.

import { constants } from "node:fs";
import { lstat, open, readdir, readlink, stat } from "node:fs/promises";

import { RingfenceError, printable } from "./errors.js";

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
/** Other systems have no names for what an open directory has: there, a link that replaces one meanwhile is followed. */
const isLinux = process.platform === "linux";

const BLOCK = 512;
const PIECE = 256 * 1024;
const SLASH = Buffer.from("/");
/** Largest number of a field of the header. */
const MAX_NUMBER = 0o77777777777;

/** Resolves to a directory's content as a tar archive. It follows no link below it; FIFOs, sockets and devices are left out. */
export async function packed(path) {
  const found = await stat(path);
  if (!found.isDirectory()) throw Object.assign(new Error(`ENOTDIR: not a directory, '${path}'`), { code: "ENOTDIR", path });
  return archive(path);
}

async function* archive(path) {
  const root = Buffer.from(path);
  const directory = await open(root, O_RDONLY | O_DIRECTORY);
  try {
    yield* below(directory, root, Buffer.alloc(0));
  } finally {
    await directory.close();
  }
  yield Buffer.alloc(2 * BLOCK);
}

/** Yields what an open directory has. A link that takes the place of it or of one above it is not followed. */
async function* below(directory, shown, above) {
  const own = isLinux ? Buffer.from(`/proc/self/fd/${directory.fd}`) : shown;
  for (const name of (await readdir(own, { encoding: "buffer" })).sort(Buffer.compare)) {
    const local = { path: Buffer.concat([own, SLASH, name]), shown: Buffer.concat([shown, SLASH, name]) };
    yield* entry(local, Buffer.concat([above, name]));
  }
}

async function* entry(local, names) {
  const found = await named(local, lstat(local.path));
  if (found.isDirectory()) {
    const directory = await named(local, open(local.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    try {
      const inside = Buffer.concat([names, SLASH]);
      yield head({ ...described(await directory.stat()), kind: "5", path: inside });
      yield* below(directory, local.shown, inside);
    } finally {
      await directory.close();
    }
  } else if (found.isSymbolicLink()) {
    const target = await named(local, readlink(local.path, "buffer"));
    yield head({ ...described(found), kind: "2", path: names, target });
  } else if (found.isFile()) yield* content(local, names);
}

const described = ({ mode, mtimeMs }) => ({ mode: mode & 0o777, modified: Math.max(0, Math.floor(mtimeMs / 1000)) });

async function* content(local, names) {
  const file = await named(local, open(local.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  try {
    const found = await file.stat();
    if (!found.isFile()) throw replaced(local);
    yield head({ ...described(found), kind: "0", path: names, size: found.size });
    for (let left = found.size; left > 0; ) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(Math.min(PIECE, left)));
      if (bytesRead === 0) throw new RingfenceError(`${printable(String(local.shown))} has become shorter while it was read`);
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
    yield Buffer.alloc((BLOCK - (found.size % BLOCK)) % BLOCK);
  } finally {
    await file.close();
  }
}

/** Names the path in the errors of an operation, in place of a descriptor's. */
async function named(local, operation) {
  try {
    return await operation;
  } catch (error) {
    if (["ELOOP", "ENOTDIR"].includes(error.code)) throw replaced(local);
    const { code, errno, syscall } = error;
    const path = String(local.shown);
    const message = `${code}: ${syscall} failed, '${printable(path)}'`;
    throw Object.assign(new Error(message), { code, errno, syscall, path });
  }
}

const replaced = ({ shown }) => new RingfenceError(`${printable(String(shown))} was replaced while it was read`);

/** Returns the header of a member, after one with what has no room in it. */
function head({ kind, path, target = Buffer.alloc(0), mode, modified, size = 0 }) {
  const records = [
    ...(path.length > 100 ? [record("path", path)] : []),
    ...(target.length > 100 ? [record("linkpath", target)] : []),
    ...(size > MAX_NUMBER ? [record("size", Buffer.from(`${size}`))] : []),
  ];
  const own = block({ kind, path, target, mode, modified, size: Math.min(size, MAX_NUMBER) });
  if (records.length === 0) return own;
  const extended = Buffer.concat(records);
  const before = block({ kind: "x", path: Buffer.from("extended"), target: Buffer.alloc(0), mode: 0o644, modified: 0, size: extended.length });
  return Buffer.concat([before, extended, Buffer.alloc((BLOCK - (extended.length % BLOCK)) % BLOCK), own]);
}

/** Returns a record, whose length includes its own digits. */
function record(key, value) {
  const rest = key.length + value.length + 3;
  let length = rest;
  while (length !== rest + `${length}`.length) length = rest + `${length}`.length;
  return Buffer.concat([Buffer.from(`${length} ${key}=`), value, Buffer.from("\n")]);
}

function block({ kind, path, target, mode, modified, size }) {
  const made = Buffer.alloc(BLOCK);
  const digits = (value, count) => Buffer.from(value.toString(8).padStart(count, "0"));
  path.copy(made, 0, 0, 100);
  digits(mode, 7).copy(made, 100);
  digits(0, 7).copy(made, 108);
  digits(0, 7).copy(made, 116);
  digits(size, 11).copy(made, 124);
  digits(Math.min(modified, MAX_NUMBER), 11).copy(made, 136);
  made.write("        ", 148);
  made.write(kind, 156);
  target.copy(made, 157, 0, 100);
  made.write("ustar\x0000", 257);
  digits(made.reduce((total, byte) => total + byte, 0), 6).copy(made, 148);
  made[154] = 0;
  return made;
}
