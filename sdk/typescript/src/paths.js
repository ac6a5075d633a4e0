// Paths of files and routes, as the server takes them.

import { unexpected } from "./arguments.js";

/** Returns a path as the server takes it: a relative one is below the directory where commands start. */
export const absolute = (path) => {
  if (typeof path !== "string") {
    throw unexpected("a path as text", "path", path, path instanceof URL ? "pass its `pathname`, if the file is in the sandbox" : "");
  }
  return path.startsWith("/") ? path : `/workspace/${path}`;
};

/** Returns an id or a name as one segment of a path. */
export const segment = (text, name = "id") => {
  if (typeof text !== "string" || text === "") throw unexpected("an id or a name", name, text);
  const encoded = encodeURIComponent(text);
  // Dots alone are taken out of paths, so that another route would be asked.
  return /^\.+$/.test(text) ? encoded.replaceAll(".", "%2E") : encoded;
};
