// Events in the lives of sandboxes.

import { ServerGone } from "./errors.js";
import { lifeEvent } from "./results.js";
import { follow } from "./streams.js";

const ENDS = ["expired", "removed", "ended"];

/** Follows the events of one sandbox, to its end. */
export async function lifeOfOne(transport, path, { signal }) {
  return await follow(transport, path, { signal, first: "ready" }, async function* (events) {
    for await (const { data } of events) {
      yield lifeEvent(data);
      if (ENDS.includes(data.type)) return;
    }
    throw gone();
  });
}

/** Follows the events of all sandboxes. */
export async function livesOfAll(transport, { signal }) {
  return await follow(transport, "/sandbox-events", { signal, first: "ready" }, async function* (events) {
    for await (const { data } of events) yield lifeEvent(data);
    throw gone();
  });
}

const gone = () => new ServerGone("the stream of events has ended: the server has");
