// Finds the program `ringfence`.

import { createHash } from "node:crypto";
import { accessSync, closeSync, constants, openSync, readFileSync, readSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, isAbsolute, join } from "node:path";
import process from "node:process";

import { ServerUnavailable } from "./errors.js";

/** Name of the package with the program for this machine. */
export const PACKAGE = `@ringfence/${process.platform}-${process.arch}`;
const PIECE = 2 ** 20;

/** Returns the path of `ringfence`: that of RINGFENCE_BIN, of the package for this machine, or of PATH; `undefined` if there is none. */
export function binary() {
  const named = process.env.RINGFENCE_BIN;
  if (named) {
    const hint = "set it to the absolute path of `ringfence`";
    if (!isAbsolute(named)) throw new ServerUnavailable(`expected an absolute path in RINGFENCE_BIN, got ${JSON.stringify(named)}`, hint);
    if (!isProgram(named)) throw new ServerUnavailable(`there is no program at ${JSON.stringify(named)}, which RINGFENCE_BIN names`, hint);
    return named;
  }
  // Relative directories of PATH lead to whatever a project has there.
  const path = (process.env.PATH ?? "").split(delimiter).filter((each) => isAbsolute(each));
  return packed() ?? path.map((directory) => join(directory, "ringfence")).find(isProgram);
}

let checked;

/** Returns the program of the package for this machine, if that is installed. */
export function packed() {
  if (checked) return checked;
  let path;
  try {
    path = createRequire(import.meta.url).resolve(`${PACKAGE}/bin/ringfence`);
  } catch {
    return undefined;
  }
  // Somebody else could have taken the package's name in a registry: only the program that this package was packed with is started.
  const { programs = {} } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  if (programs[PACKAGE] !== digest(path)) {
    throw new ServerUnavailable(`${path} is not the program that this package was made with`, "install both packages of one release");
  }
  checked = path;
  return path;
}

function digest(path) {
  const hash = createHash("sha256");
  const file = openSync(path);
  try {
    const piece = Buffer.alloc(PIECE);
    for (let read; (read = readSync(file, piece)) > 0; ) hash.update(piece.subarray(0, read));
  } finally {
    closeSync(file);
  }
  return hash.digest("hex");
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
