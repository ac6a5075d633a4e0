// Keys, their usage, and the audit log.

import { IncompatibleServer } from "./errors.js";
import { segment } from "./paths.js";
import { camel } from "./results.js";

const keyInfo = (data) => camel(data, ["id", "name", "rights", "created", "revoked", "quota"]);
const keyUsage = (data) => camel(data, ["id", "today", "total", "quota"]);

export function usageReport(data) {
  const report = camel(data, ["resets_at", "keys"]);
  return { ...report, keys: report.keys.map(keyUsage) };
}

export class Keys {
  #transport;

  constructor(transport) {
    this.#transport = transport;
  }

  async list() {
    const { keys = [] } = await this.#transport.json("GET", "/keys");
    return keys.map(keyInfo);
  }

  async revoke(keyId) {
    await this.#transport.json("POST", `/keys/${segment(keyId, "keyId")}/revoke`);
  }

  async remove(keyId) {
    await this.#transport.json("DELETE", `/keys/${segment(keyId, "keyId")}`);
  }
}

export class Audit {
  #transport;

  constructor(transport) {
    this.#transport = transport;
  }

  async list({ limit, tenant, client, tool, outcome, host } = {}) {
    const params = { limit, tenant, client, tool, outcome, host };
    const { records } = await this.#transport.json("GET", "/audit", { params });
    if (!Array.isArray(records)) throw new IncompatibleServer("expected records of the audit log");
    return records;
  }

  async verify({ head, host, signal } = {}) {
    return camel(await this.#transport.json("GET", "/audit/verify", { params: { head, host }, signal }), ["intact"]);
  }
}
