// Files of this machine.

import { randomBytes } from "node:crypto";
import { link, lstat, open, rename, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { unexpected } from "./arguments.js";

/** Returns the path of a local file. */
export function localPath(path, name) {
  if (path instanceof URL && path.protocol === "file:") return fileURLToPath(path);
  if (typeof path !== "string" || path === "") throw unexpected("a local path as text or a URL `file:`", name, path);
  return path;
}

/** Resolves to `true` if something has this name. */
export async function exists(path) {
  return await lstat(path).then(
    () => true,
    (error) => {
      if (error.code === "ENOENT") return false;
      throw error;
    },
  );
}

export const taken = (path) => Object.assign(new Error(`EEXIST: file already exists, '${path}'`), { code: "EEXIST", path });

/** Makes a file that must not exist of pieces, and returns its length. It has its name once it is complete: an error leaves nothing. */
export async function newFile(path, pieces) {
  if (await exists(path)) throw taken(path);
  const temporary = join(dirname(path), `.ringfence-${randomBytes(8).toString("hex")}`);
  const file = await open(temporary, "wx").catch((error) => {
    throw Object.assign(new Error(`${error.code}: cannot create '${path}'`), { code: error.code, path });
  });
  try {
    const length = await filled(file, pieces);
    await publish(temporary, path);
    return length;
  } catch (error) {
    // There is none any more if it failed at the end.
    await unlink(temporary).catch(() => {});
    throw error;
  }
}

async function filled(file, pieces) {
  let length = 0;
  try {
    for await (const piece of pieces) {
      await file.writeFile(piece);
      length += piece.length;
    }
  } finally {
    await file.close();
  }
  return length;
}

async function publish(temporary, path) {
  try {
    // Unlike a rename, a link replaces nothing that has appeared meanwhile.
    await link(temporary, path);
  } catch (error) {
    if (error.code === "EEXIST" || (await exists(path))) throw taken(path);
    // A file system without hard links.
    return await rename(temporary, path);
  }
  await unlink(temporary);
}
