// Paths of files and routes, as the server takes them.

/** Returns a path as the server takes it: a relative one is below the directory where commands start. */
export const absolute = (path) => (path.startsWith("/") ? path : `/workspace/${path}`);

/** Returns a text as one segment of a path. */
export const segment = (text) => {
  const encoded = encodeURIComponent(text);
  // Dots alone are taken out of paths, so that another route would be asked.
  return /^\.+$/.test(text) ? encoded.replaceAll(".", "%2E") : encoded;
};
