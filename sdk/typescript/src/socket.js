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

/** Checks that a directory is not a link, ours, and closed to others: anybody may make one in /tmp. */
export function checkPrivate(directory) {
  const uid = process.getuid();
  const found = lstatSync(directory);
  let why;
  if (!found.isDirectory()) why = "it is not a directory";
  else if (found.uid !== uid) why = `it belongs to user ${found.uid}`;
  else if (found.mode & 0o077) why = `others may enter it (mode ${(found.mode & 0o777).toString(8)})`;
  if (why) {
    throw new ServerUnavailable(
      `cannot use the directory ${directory}: ${why}`,
      "remove it, or set XDG_RUNTIME_DIR to one of your own",
    );
  }
}

/** Returns `true` if there is a socket. Throws if somebody else could have put it there. */
export function hasSocket(path, isPrivate) {
  const directory = lstatSync(dirname(path), { throwIfNoEntry: false });
  if (isPrivate && directory) checkPrivate(dirname(path));
  const found = directory && lstatSync(path, { throwIfNoEntry: false });
  if (!found) return false;
  if (!found.isSocket()) throw new ServerUnavailable(`${path} is not a socket`);
  if (found.uid !== process.getuid()) {
    throw new ServerUnavailable(
      `the socket ${path} belongs to user ${found.uid}`,
      "a server of your own user has one that is yours",
    );
  }
  return true;
}

/** Returns what identifies the server at the private socket: another one makes another socket. `undefined`: there is no socket. */
export function identity(path) {
  if (!hasSocket(path, true)) return undefined;
  const found = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return found && [found.dev, found.ino, found.mtimeNs].join();
}

/** Checks that there is a socket, and that no other user could have put it there. */
export function checkSocket(path, isPrivate) {
  if (!hasSocket(path, isPrivate)) throw new ServerUnavailable(`no server listens at ${path}`, "start `ringfence serve`");
}
