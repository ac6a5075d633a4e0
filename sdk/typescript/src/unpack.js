// Unpacks a tar archive of a sandbox into a directory of this machine.
//
// What comes out of a sandbox is hostile. It is unpacked into a new directory where nothing is but what came before: directories
// and files by plain names first, links at the end, so that no name leads anywhere else. Links that could lead out of the tree are
// left out, and so is what programs of this machine execute or obey.

import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { chmod, link, lstat, mkdir, open, rename, rm, rmdir, symlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";

import { IncompatibleServer, RingfenceError, ServerGone, printable } from "./errors.js";
import { exists, taken } from "./local.js";
import { Protection } from "./protection.js";

/** Bounds of an archive; tests set others. */
export const limits = { entries: 1_000_000 };
const MAX_DEPTH = 256;
const MAX_EXTENDED = 16 * 2 ** 10;
const BLOCK = 512;
const SLASH = 47;
/** Types of members: files, hard links, symbolic links, directories. */
const KINDS = ["0", "1", "2", "5"];

/** Makes a directory that must not exist of an archive. It has its name once it is complete: an error leaves nothing. */
export async function unpacked(pieces, to, maxSize, { includeProtected = false } = {}) {
  try {
    return await made(pieces, resolve(to), maxSize, includeProtected);
  } catch (error) {
    throw shownSafely(error);
  }
}

async function made(pieces, path, maxSize, includeProtected) {
  if (await exists(path)) throw taken(path);
  const temporary = join(dirname(path), `.ringfence-${randomBytes(8).toString("hex")}`);
  await mkdir(temporary, 0o700);
  const unpacker = new Unpacker(temporary, maxSize, includeProtected);
  try {
    for await (const piece of pieces) await unpacker.feed(piece);
    await unpacker.finish();
    await publish(temporary, path);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    throw error;
  } finally {
    await unpacker.close();
  }
  await unpacker.restrict(path);
  return unpacker.result;
}

async function publish(temporary, path) {
  // A rename replaces an empty directory, and nothing else that has appeared meanwhile.
  await mkdir(path);
  try {
    await chmod(temporary, (await lstat(path)).mode & 0o777);
    await rename(temporary, path);
  } catch (error) {
    await rmdir(path).catch(() => {});
    throw error;
  }
}

/** Returns an error of the system without the control characters of a path's names. */
function shownSafely(error) {
  if (error.syscall === undefined || printable(error.message) === error.message) return error;
  const { code, errno, syscall, path } = error;
  return Object.assign(new Error(printable(error.message)), { code, errno, syscall, path });
}

/** Reads the form of tar that sandboxes write, from pieces of any size. */
class Unpacker {
  #root;
  #allowed;
  #counted = 0;
  #pending = Buffer.alloc(0);
  #left = 0;
  #padding = 0;
  #file;
  #modified = 0;
  #records;
  #extended = new Map();
  // Links are made last, through those made before: their parents must be directories of the archive, as all parents.
  #directories = new Set([""]);
  #links = [];
  #modes = [];
  #protection;
  // With all below: hard links elsewhere lead there, too.
  #skipped = new Set();
  #seen = 0;
  #isOver = false;
  result = { entries: 0, bytes: 0, leftOut: [], protected: [] };

  constructor(root, maxSize, includeProtected) {
    this.#root = root;
    this.#allowed = maxSize;
    this.#protection = includeProtected ? undefined : new Protection();
  }

  async feed(piece) {
    let rest = this.#pending.length ? Buffer.concat([this.#pending, piece]) : Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    while (rest.length > 0) {
      if (this.#left > 0) {
        const content = rest.subarray(0, this.#left);
        rest = rest.subarray(content.length);
        this.#left -= content.length;
        if (this.#records) this.#records.push(Buffer.from(content));
        else if (this.#file) await written(this.#file, content);
        if (this.#left === 0) await this.#endMember();
      } else if (this.#padding > 0) {
        const skipped = Math.min(this.#padding, rest.length);
        rest = rest.subarray(skipped);
        this.#padding -= skipped;
      } else if (rest.length >= BLOCK) {
        const block = rest.subarray(0, BLOCK);
        rest = rest.subarray(BLOCK);
        await this.#header(block);
      } else break;
    }
    this.#pending = Buffer.from(rest);
  }

  async #endMember() {
    if (this.#records) {
      this.#extended = parsed(Buffer.concat(this.#records));
      this.#records = undefined;
    } else if (this.#file) {
      await this.#file.utimes(this.#modified, this.#modified);
      await this.close();
    }
  }

  async close() {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  async #header(block) {
    if (block.every((byte) => byte === 0)) {
      this.#isOver = true;
      return this.#count(0);
    }
    if (this.#isOver) throw malformed("something follows its end");
    const sum = block.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
    if (octal(block.subarray(148, 156)) !== sum) throw malformed("a checksum is wrong");
    const kind = String.fromCharCode(block[156]);
    const extended = this.#extended;
    this.#extended = new Map();
    let size = octal(block.subarray(124, 136));
    if (kind === "x") {
      if (extended.size > 0 || size > MAX_EXTENDED) throw malformed("an extended header is too long");
      this.#records = [];
    } else {
      if (extended.has("size")) size = number(extended.get("size"));
      if (size > 0 && kind !== "0") throw malformed(`a member of the type ${kind} has a content`);
      this.#modified = octal(block.subarray(136, 148));
    }
    this.#count(size);
    this.#left = size;
    this.#padding = (BLOCK - (size % BLOCK)) % BLOCK;
    if (kind !== "x") {
      const path = extended.get("path") ?? text(block.subarray(0, 100));
      const target = extended.get("linkpath") ?? text(block.subarray(157, 257));
      await this.#place(kind, namesOf(path), octal(block.subarray(100, 108)) & 0o777, target);
    }
    if (size === 0) await this.#endMember();
  }

  #count(size) {
    this.#counted += BLOCK + size;
    if (this.#counted > this.#allowed) {
      throw new RingfenceError(`the directory has more than ${this.#allowed} bytes`, "pass a larger `maxSize`");
    }
  }

  async #place(kind, names, mode, target) {
    const place = at(this.#root, names);
    const parent = key(names.slice(0, -1));
    if (!this.#directories.has(parent) && !this.#skipped.has(parent)) throw malformed(`no directory came before ${joined(names)}`);
    this.#seen += 1;
    if (this.#seen > limits.entries) {
      throw new RingfenceError(`the directory has more than ${limits.entries} entries`, "download those below it one by one");
    }
    if (!KINDS.includes(kind)) throw malformed(`a member has the type ${kind}`);
    if (this.#isSkipped(kind, names, parent, target)) return;
    this.result.entries += 1;
    try {
      if (kind === "0") {
        const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
        this.#file = await open(place, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        this.result.bytes += this.#left;
      } else if (kind === "1") await link(at(this.#root, namesOf(target)), place);
      else if (kind === "2") this.#links.push([names, target]);
      else {
        await mkdir(place, mode | 0o700);
        this.#modes.push([names, mode]);
        this.#directories.add(key(names));
      }
    } catch (error) {
      throw ["EEXIST", "ENOENT", "ENOTDIR"].includes(error.code) ? malformed(error.message) : error;
    }
  }

  /** Returns `true` for a protected entry and what is below it, which its name stands for. */
  #isSkipped(kind, names, parent, target) {
    if (!this.#protection) return false;
    if (!this.#skipped.has(parent)) {
      const isLinkThere = kind === "1" && this.#skipped.has(key(namesOf(target)));
      if (!isLinkThere && !this.#protection.covers(names, parent)) return false;
      this.result.protected.push(String(joined(names)));
    }
    this.#skipped.add(key(names));
    return true;
  }

  /** Makes the links. Throws if the archive is not complete. */
  async finish() {
    if (!this.#isOver) throw new ServerGone("the archive broke off before its end");
    for (const [names, target] of this.#links) {
      const place = at(this.#root, names);
      const shown = String(joined(names));
      if (await exists(place)) throw malformed(`${shown} comes twice`);
      if (stays(target, names.length - 1)) await symlink(target, place);
      else {
        this.result.leftOut.push(shown);
        this.result.entries -= 1;
      }
    }
    this.result.leftOut = [...this.result.leftOut, ...this.result.protected];
  }

  /** Takes the rights on directories that the sandbox's owner of them had not, now that all is there. */
  async restrict(path) {
    for (const [names, mode] of this.#modes.reverse()) {
      if ((mode & 0o700) === 0o700) continue;
      const place = at(path, names);
      await chmod(place, (await lstat(place)).mode & mode);
    }
  }
}

async function written(file, content) {
  for (let rest = content; rest.length > 0; ) rest = rest.subarray((await file.write(rest)).bytesWritten);
}

function split(path) {
  const names = [];
  let from = 0;
  for (let to = path.indexOf(SLASH); to >= 0; to = path.indexOf(SLASH, from)) {
    names.push(path.subarray(from, to));
    from = to + 1;
  }
  return [...names, path.subarray(from)];
}

const joined = (names) => Buffer.concat(names.flatMap((name, at) => (at ? [Buffer.from("/"), name] : [name])));
// Names need not be UTF-8.
const at = (root, names) => joined([Buffer.from(root), ...names]);
// Each byte is a character: other names give other keys.
const key = (names) => joined(names).toString("latin1");
const isOneOf = (name, ...others) => others.includes(name.toString("latin1"));

function namesOf(path) {
  const names = split(path.at(-1) === SLASH ? path.subarray(0, -1) : path);
  if (names.length > MAX_DEPTH || names.some((name) => isOneOf(name, "", ".", "..") || name.includes(0))) {
    throw malformed(`a member has the path ${String(path).slice(0, 200)}`);
  }
  return names;
}

/** Returns `true` if a link at this depth leads to the tree: after a name, `..` would be of what that leads to. */
function stays(target, depth) {
  const names = split(target).filter((name) => !isOneOf(name, "", "."));
  const first = names.findIndex((name) => !isOneOf(name, ".."));
  const up = first < 0 ? names.length : first;
  const isRelative = target.length > 0 && target[0] !== SLASH;
  return isRelative && up <= depth && !names.slice(up).some((name) => isOneOf(name, ".."));
}

function octal(field) {
  const digits = field.toString("latin1").replace(/[\0 ]+$/, "");
  if (!/^[0-7]+$/.test(digits)) throw malformed("a number is not octal");
  return parseInt(digits, 8);
}

function number(field) {
  const digits = field.toString("latin1");
  if (!/^\d{1,15}$/.test(digits)) throw malformed("a number is not decimal");
  return Number(digits);
}

const text = (field) => Buffer.from(field.includes(0) ? field.subarray(0, field.indexOf(0)) : field);

/** Returns the records `LENGTH KEY=VALUE` of an extended header. */
function parsed(records) {
  const found = new Map();
  for (let rest = records; rest.length > 0; ) {
    const blank = rest.indexOf(" ");
    const count = blank > 0 ? number(rest.subarray(0, blank)) : 0;
    const record = rest.subarray(blank + 1, count);
    const equals = record.indexOf("=");
    if (count > rest.length || equals < 0 || record.at(-1) !== 10) throw malformed("an extended header has no records");
    found.set(record.toString("latin1", 0, equals), record.subarray(equals + 1, -1));
    rest = rest.subarray(count);
  }
  return found;
}

const malformed = (why) => new IncompatibleServer(`the archive is none of a sandbox: ${printable(why)}`);
