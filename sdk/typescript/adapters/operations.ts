// Compiles if the types of lives, directories, ports, questions, stored runs, images, keys, usage and the audit log fit their use.

import { Client, Sandbox, type Approval, type AuditRecord, type KeyInfo, type LifeEvent, type StoredRun } from "ringfence";

export async function lives(client: Client): Promise<void> {
  await using sandbox = await Sandbox.create({ client, ports: true });
  await using events = await sandbox.events();
  await using web = await sandbox.ports.forward(8000, { onError: (error) => console.log(error.hint) });
  for (const copy of await sandbox.fork({ count: 2 })) await copy.pause();
  const { leftOut } = await sandbox.files.downloadDir("out", "copy", { maxSize: 1000 });
  const { skipped } = await sandbox.files.uploadDir("copy", "again");
  console.log(leftOut.length, skipped, await sandbox.files.download("a", new URL("file:///tmp/a")));
  const { duration = 0 } = await sandbox.commands.run(["true"], { maxOutput: "1MiB" });
  const { truncated, warnings } = await client.run("1", { language: "js" });
  console.log(duration, truncated, warnings.length);
  const { diskLimit } = await sandbox.snapshot();
  for await (const event of events) {
    const { reason }: LifeEvent = event;
    if (event.type === "removed") console.log(web.url, diskLimit, reason);
  }
}

export async function operations(client: Client): Promise<number> {
  for await (const event of await client.approvals.events()) {
    if (event.type === "over") break;
    const question: Approval = event.question;
    await client.approvals.answer(question, true, { remember: { uses: 5 } });
  }
  const { runs, next } = await client.runs.list({ limit: 1, before: "x" });
  for (const { id } of runs) {
    const { result }: StoredRun = await client.runs.get(id);
    console.log(result.meta.outcome, next);
  }
  const { image } = await client.images.pull("a:1", { onProgress: ({ received, size }) => received / size });
  return image.content.setIds;
}

export async function administration(client: Client): Promise<number | undefined> {
  const [key]: KeyInfo[] = await client.keys.list();
  if (key?.rights.includes("admin") && key.expires !== null) await client.keys.revoke(key.id);
  const { keys, resetsAt } = await client.usage();
  const [used] = keys.map(({ today, quota }) => today.memoryGibSeconds + (quota.cpuSeconds ?? 0));
  const [record]: AuditRecord[] = await client.audit.list({ outcome: "failed", host: true });
  const { broken } = await client.audit.verify({ signal: AbortSignal.timeout(1000) });
  console.log(resetsAt, broken?.sequence, record?.who?.client);
  return used;
}
