// Finds entries of a tree that programs of this machine execute or obey, as `ringfence run -o` does.
//
// Names are compared as the most lenient file system does: see crates/trust/src/protected.rs, which has the reasons.

import { PROTECTED } from "./protected.js";

/** Compiled code, which Python loads in place of the source beside it. */
const BYTECODE = ["__pycache__", "*.pyc"];

// A directory with these is a git repository without a working tree, whose settings name programs.
const REPOSITORY = ["head", "objects", "refs"];
const NEVER = ["commondir", "config.worktree"];

const UNSEEN =
  /[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

function fold(name) {
  const narrow = name
    .split(":", 1)[0]
    .replace(UNSEEN, "")
    .replace(/[\uff01-\uff5e]/g, (wide) => String.fromCharCode(wide.charCodeAt(0) - 0xfee0))
    .replaceAll("\u2024", ".");
  // Upper case first: some letters, such as the long s, only map to their plain form that way.
  return Array.from(narrow.toUpperCase(), (letter) => letter.toLowerCase()).join("").replace(/[. ]+$/, "");
}

const PATHS = [...PROTECTED, ...BYTECODE].map((path) => path.split("/").map(fold));
const LONGEST = Math.max(...PATHS.map((path) => path.length));
const LAST = new Set(PATHS.map((path) => path.at(-1)));
const SUFFIXES = [...LAST].filter((last) => last.startsWith("*")).map((last) => last.slice(1));

/** Returns `true` if a path, as names in bytes, ends with a protected one. */
export function endsProtected(names) {
  const tail = names.slice(-LONGEST).map((name) => fold(String(name)));
  const last = tail.at(-1);
  // A tree has many names, and the list is long.
  if (!LAST.has(last) && !last.includes("~") && !SUFFIXES.some((suffix) => last.endsWith(suffix))) return false;
  return PATHS.some((path) => tail.length >= path.length && path.every((each, at) => isSame(tail.at(at - path.length), each)));
}

function isSame(name, path) {
  if (path.startsWith("*")) return name.endsWith(path.slice(1));
  if (name === path) return true;
  // The short form that FAT and NTFS have, such as `git~1`.
  const short = /^([^~]+)~[0-9]+(\..*)?$/s.exec(name);
  return short !== null && path.replaceAll(".", "").startsWith(short[1]);
}

/** What is protected in one tree, from its root down. */
export class Protection {
  #repositories = new Map();

  /** Returns `true` for an entry, in a directory with this key, to leave out. Those above it were asked about before, and are none. */
  covers(names, parent) {
    return endsProtected(names) || this.#completesRepository(fold(String(names.at(-1))), parent);
  }

  #completesRepository(name, parent) {
    if (!REPOSITORY.includes(name)) return NEVER.includes(name);
    const there = this.#repositories.get(parent) ?? new Set();
    if (REPOSITORY.every((each) => each === name || there.has(each))) return true;
    this.#repositories.set(parent, there.add(name));
    return false;
  }
}
