// Checks of arguments, before anything is sent.

import { InvalidArguments } from "./errors.js";

/** Characters of a value in a message. */
export const MAX_SHOWN = 60;

// As the command line has them, and `ts`.
const LANGUAGES = { py: "python", python3: "python", sh: "bash", shell: "bash", js: "javascript", node: "javascript", ts: "typescript" };

const UNITS = { "": 1, b: 1, k: 2 ** 10, kib: 2 ** 10, m: 2 ** 20, mib: 2 ** 20, g: 2 ** 30, gib: 2 ** 30, t: 2 ** 40, tib: 2 ** 40 };
Object.assign(UNITS, { kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12 });

export const invalid = (message, hint) => new InvalidArguments("invalid_arguments", message, hint);

/** Returns the error for an argument. Of a value that is no short text or number it names the type alone. */
export function unexpected(expected, name, found, hint) {
  return invalid(`expected ${expected} for \`${name}\`, got ${shown(found)}`, hint);
}

/** Names a value, or the type of one that may be large or secret. */
function shown(value) {
  const text = typeof value === "string" ? JSON.stringify(value) : typeof value === "number" ? String(value) : "";
  if (text && text.length <= MAX_SHOWN) return text;
  return typeName(value);
}

/** Names the type of a value, which itself may be large or secret. */
export const typeName = (value) => (typeof value === "object" ? (value?.constructor?.name ?? "null") : typeof value);

const isBytes = (value) => ArrayBuffer.isView(value) || value instanceof ArrayBuffer;

/** Returns a list of texts. A text alone is refused: it would be split into its characters. */
export function texts(values, name) {
  if (typeof values === "string") throw unexpected("a list of texts", name, values, values.length <= MAX_SHOWN ? `pass \`${name}: [${shown(values)}]\`` : "");
  if (isBytes(values) || !values?.[Symbol.iterator]) throw unexpected("a list of texts", name, values);
  return Array.from(values, (each) => {
    if (typeof each !== "string") throw unexpected("texts", name, each);
    return each;
  });
}

/** Returns a line for the shell, or a program and its arguments. */
export const commandOf = (command) => (Array.isArray(command) ? texts(command, "command") : checkedCommand(command));

function checkedCommand(command) {
  if (typeof command === "string") return command;
  throw unexpected("a line for the shell, or a list of a program and its arguments,", "command", command);
}

/** Returns programs as the server takes them. */
export function programsOf(programs) {
  if (typeof programs === "string" || isBytes(programs) || !programs?.[Symbol.iterator]) {
    throw unexpected("a list of programs", "programs", programs, "pass a list of one, or use `run`");
  }
  return Array.from(programs, (each) => {
    if (typeof each === "string") return { code: each };
    if (each === null || typeof each !== "object") throw unexpected("code, or an object with the options of `run`,", "programs", each);
    return { ...each, language: languageOf(each.language) };
  });
}

/** Returns the API's name of a language. The server has the last word on others. */
export function languageOf(language) {
  const known = String(language).toLowerCase();
  return Object.hasOwn(LANGUAGES, known) ? LANGUAGES[known] : language;
}

/** Returns a number of bytes or characters, given as such or as a text such as `1MiB`. */
export function sizeOf(value, name) {
  const [, digits, unit] = (typeof value === "string" && /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$/.exec(value)) || [];
  if (digits !== undefined && Object.hasOwn(UNITS, unit.toLowerCase())) return Math.floor(Number(digits) * UNITS[unit.toLowerCase()]);
  if (!Number.isInteger(value) || value < 0) throw unexpected("a number, or a text such as `10KiB` or `256MiB`,", name, value);
  return value;
}

/** Returns a whole number. */
export function numberOf(value, name, least = 0) {
  if (!Number.isInteger(value) || value < least) throw unexpected(`a whole number of at least ${least}`, name, value);
  return value;
}

/** Encodes the body of a request. JSON has no other numbers than finite ones: a time of NaN would be none. */
export function encoded(json) {
  try {
    return JSON.stringify(json, (name, value) => {
      if (typeof value === "number" && !Number.isFinite(value)) throw unexpected("a finite number", name, value);
      return value;
    });
  } catch (error) {
    if (error instanceof InvalidArguments) throw error;
    throw invalid(`an argument cannot be sent: ${error.message}`);
  }
}

const MAPPINGS = ["env", "metadata", "files"];
const CALLBACKS = ["onStdout", "onStderr", "onResult", "onProgress", "onError"];

/** Returns the error for an option of the wrong type, if it has one. */
export function wrongOption(name, value) {
  if (value === undefined) return undefined;
  if (typeof value === "number" && !(Number.isFinite(value) && value >= 0)) return unexpected("a finite number that is not negative", name, value);
  if (CALLBACKS.includes(name) && value !== null && typeof value !== "function") return unexpected("a function", name, value);
  if (MAPPINGS.includes(name) && value !== null && (typeof value !== "object" || value[Symbol.iterator] || isBytes(value))) {
    return unexpected("an object of names and texts", name, value, `write it like \`${name}: { NAME: "text" }\``);
  }
  return undefined;
}

/** Returns the known name that was probably meant, as a hint. */
export function nameHint(name, known) {
  const plain = (text) => text.replaceAll("_", "").toLowerCase();
  const given = plain(name);
  const seconds = given.endsWith("ms") && known.find((each) => plain(each) === given.slice(0, -2));
  if (seconds) return `use \`${seconds}\`, in seconds`;
  const near =
    known.find((each) => plain(each) === given) ??
    known.find((each) => plain(each).startsWith(given) || given.startsWith(plain(each))) ??
    known.find((each) => letters(given) === letters(plain(each)) || edits(given, plain(each)) <= given.length / 3) ??
    known.find((each) => isShort(given, plain(each)));
  return near && `use \`${near}\``;
}

const letters = (text) => [...text].sort().join("");

/** Returns `true` for a name whose beginning and some letters after it were written, such as `cols` for `columns`. */
function isShort(given, name) {
  let at = 0;
  for (const character of name) if (character === given[at]) at += 1;
  return given[0] === name[0] && given.length > 2 && at === given.length;
}

/** Returns the number of characters to insert, remove or replace. */
function edits(one, two) {
  let row = Array.from({ length: two.length + 1 }, (_, at) => at);
  for (const [at, character] of [...one].entries()) {
    const next = [at + 1];
    for (let to = 0; to < two.length; to += 1) {
      next.push(Math.min(next[to] + 1, row[to + 1] + 1, row[to] + (character === two[to] ? 0 : 1)));
    }
    row = next;
  }
  return row.at(-1);
}
