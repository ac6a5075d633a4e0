// The private socket of this user's server.

import { lstatSync, statSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import process from "node:process";

import { ServerUnavailable } from "./errors.js";

export function privateSocket() {
  const named = process.env.XDG_RUNTIME_DIR ?? "";
  if (isAbsolute(named)) return join(named, "ringfence/engine.sock");
  const uid = process.getuid();
  const customary = `/run/user/${uid}`;
  const found = statSync(customary, { throwIfNoEntry: false });
  return found?.isDirectory() && found.uid === uid
    ? `${customary}/ringfence/engine.sock`
    : `/tmp/ringfence-${uid}/engine.sock`;
}

/** Checks that there is a socket, and that nobody else could have put it there. */
export function checkSocket(path, isPrivate) {
  const uid = process.getuid();
  const directory = lstatSync(dirname(path), { throwIfNoEntry: false });
  const found = directory && lstatSync(path, { throwIfNoEntry: false });
  if (isPrivate && directory) {
    let why;
    if (!directory.isDirectory()) why = "it is not a directory";
    else if (directory.uid !== uid) why = `it belongs to user ${directory.uid}`;
    else if (directory.mode & 0o077) why = `others may enter it (mode ${(directory.mode & 0o777).toString(8)})`;
    if (why) {
      throw new ServerUnavailable(
        `cannot use the directory ${dirname(path)}: ${why}`,
        "remove it, or set XDG_RUNTIME_DIR to one of your own",
      );
    }
  }
  if (!found) throw new ServerUnavailable(`no server listens at ${path}`, "start `ringfence serve`");
  if (!found.isSocket()) throw new ServerUnavailable(`${path} is no socket`);
  if (found.uid !== uid) {
    throw new ServerUnavailable(
      `the socket ${path} belongs to user ${found.uid}`,
      "a server of your own user has one that is yours",
    );
  }
}
