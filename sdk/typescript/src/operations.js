// Questions to people, stored runs, images, and snapshots of sandboxes.

import { unexpected } from "./arguments.js";
import { ServerGone } from "./errors.js";
import { segment } from "./paths.js";
import { approval, image, runSummary, snapshotInfo, storedRun } from "./results.js";
import { follow } from "./streams.js";

export class Approvals {
  #transport;

  constructor(transport) {
    this.#transport = transport;
  }

  async list({ past = false } = {}) {
    const { waiting = [], past: over = [] } = await this.#transport.json("GET", "/approvals", { params: { past } });
    return [...waiting, ...over].map(approval);
  }

  async get(approvalId) {
    return approval(await this.#transport.json("GET", `/approvals/${segment(approvalId, "approvalId")}`));
  }

  async answer(question, approved, { remember = "once" } = {}) {
    if (typeof question?.digest !== "string") throw unexpected("a question, such as `approvals.get(id)` returns,", "question", question);
    const json = { approved, digest: question.digest, remember };
    await this.#transport.json("POST", `/approvals/${segment(question.id)}`, { json });
  }

  async events({ signal } = {}) {
    return await follow(this.#transport, "/approvals/events", { signal, first: "waiting" }, questions);
  }
}

async function* questions(events) {
  for await (const { name, data } of events) {
    if (name === "question") {
      const question = approval(data);
      yield { type: name, id: question.id, question };
    } else if (name === "over") {
      yield { type: name, id: data.id, state: data.state ?? undefined, by: data.by ?? undefined };
    }
  }
  throw new ServerGone("the stream of questions has ended: the server has");
}

export class Runs {
  #transport;

  constructor(transport) {
    this.#transport = transport;
  }

  async list({ limit, before } = {}) {
    const { runs = [], next } = await this.#transport.json("GET", "/runs", { params: { limit, before } });
    return { runs: runs.map(runSummary), next: next ?? undefined };
  }

  async get(runId) {
    return storedRun(await this.#transport.json("GET", `/runs/${segment(runId, "runId")}`));
  }
}

export class Images {
  #transport;

  constructor(transport) {
    this.#transport = transport;
  }

  async list() {
    const { images = [] } = await this.#transport.json("GET", "/images");
    return images.map(image);
  }

  async pull(reference, { onProgress, signal } = {}) {
    const json = { reference };
    for await (const { name, data } of this.#transport.events("POST", "/images", { json, signal })) {
      if (name === "progress") await onProgress?.(data);
      else if (name === "result") return { image: image(data.image), wasThere: data.was_there };
    }
    throw new ServerGone("the stream of events ended before the pull");
  }

  async remove(reference) {
    const { files } = await this.#transport.json("DELETE", "/images", { params: { image: reference } });
    return files;
  }
}

export class Snapshots {
  #transport;

  constructor(transport) {
    this.#transport = transport;
  }

  async list() {
    const { snapshots = [] } = await this.#transport.json("GET", "/snapshots");
    return snapshots.map(snapshotInfo);
  }

  async get(snapshotId) {
    return snapshotInfo(await this.#transport.json("GET", `/snapshots/${segment(snapshotId, "snapshotId")}`));
  }

  async remove(snapshotId) {
    await this.#transport.json("DELETE", `/snapshots/${segment(snapshotId, "snapshotId")}`);
  }
}
