// Runs a program by openapi-fetch, with the types that openapi-typescript made of the document.

import createClient from "openapi-fetch";
import type { paths } from "./schema.ts";

const { URL: baseUrl, KEY: key } = process.env;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
const { data, error } = await client.POST("/v1/run", { body: { code: "print(6 * 7)" } });
if (error) {
  throw new Error(`${error.error.type}: ${error.error.message}`);
}
if (typeof data === "string" || data.stdout !== "42\n" || data.exit_code !== 0) {
  throw new Error(`expected the output 42, got ${JSON.stringify(data)}`);
}
console.log(`typescript client: ${data.stdout.trim()} from runtime ${data.meta.runtime}`);
