// Restate: the request to the ingress carries the business identifier as idempotency key, and the effect is
// a `ctx.run`. The server lives through the kills; this process is the service that is killed.

import { spawn } from "node:child_process";
import { existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";

const require = createRequire(path.join(process.env.BASELINES, "package.json"));
const restate = require("@restatedev/restate-sdk");
const ANSWER_MS = 15_000;
const DEADLINE_MS = 1_000;
const [home, url, kind, target, words] = process.argv.slice(2);
const file = path.join(home, "restate.json");

if (url === "--down") {
  if (existsSync(file)) process.kill(JSON.parse(readFileSync(file)).pid, "SIGKILL");
  process.exit(0);
}

const freePort = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

async function until(what, milliseconds = 30_000) {
  const end = Date.now() + milliseconds;
  for (;;) {
    try {
      if (await what()) return true;
    } catch {}
    if (Date.now() > end) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function start() {
  const [ingress, admin, node, service] = [await freePort(), await freePort(), await freePort(), await freePort()];
  const binary = require.resolve("@restatedev/restate-server-linux-x64/bin/restate-server");
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    RESTATE_BASE_DIR: path.join(home, "restate"),
    RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
    RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
    RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
    RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}`,
    RESTATE_DISABLE_TELEMETRY: "true",
  };
  const log = openSync(path.join(home, "restate.log"), "a");
  const server = spawn(binary, ["--no-logo"], { env, cwd: home, detached: true, stdio: ["ignore", log, log] });
  server.unref();
  const known = { ingress, admin, service, pid: server.pid };
  writeFileSync(file, JSON.stringify(known));
  await until(async () => (await fetch(`http://127.0.0.1:${admin}/health`)).ok);
  await until(async () => (await fetch(`http://127.0.0.1:${ingress}/restate/health`)).ok);
  return known;
}

function request(key) {
  if (kind === "email") {
    const body = JSON.stringify({ to: target, subject: words, body: words, reference: key });
    return ["/v1/emails", "application/json", body];
  }
  const charge = target.replace("R-", "ch_");
  const form = { charge, "metadata[return]": target, "metadata[reason]": words, "metadata[ref]": key };
  return ["/v1/refunds", "application/x-www-form-urlencoded", new URLSearchParams(form).toString()];
}

async function send({ path, type, body, key }) {
  const headers = { "Content-Type": type, "Idempotency-Key": key };
  const answer = await fetch(url + path, { method: "POST", headers, body, signal: AbortSignal.timeout(DEADLINE_MS) });
  if (answer.status === 400 || answer.status === 402) throw new restate.TerminalError("refused");
  if (!answer.ok) throw new Error(`the provider answered ${answer.status}`);
  return (await answer.json()).id;
}

const tool = restate.service({
  name: "tool",
  handlers: { act: async (ctx, wanted) => ctx.run("send", () => send(wanted)) },
});

const known = existsSync(file) ? JSON.parse(readFileSync(file)) : await start();
await restate.serve({ services: [tool], port: known.service });
const admin = `http://127.0.0.1:${known.admin}`;
const uri = `http://127.0.0.1:${known.service}`;
if (!known.registered) {
  const json = { "Content-Type": "application/json" };
  const body = JSON.stringify({ uri, force: true });
  await until(async () => (await fetch(`${admin}/deployments`, { method: "POST", headers: json, body })).ok);
  writeFileSync(file, JSON.stringify({ ...known, registered: true }));
}

const key = `${kind}:${target}`;
const [to, type, body] = request(key);
let told;
try {
  const answer = await fetch(`http://127.0.0.1:${known.ingress}/tool/act`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "idempotency-key": key },
    body: JSON.stringify({ path: to, type, body, key }),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  const receipt = await answer.json();
  told = answer.ok
    ? { status: "done", next_action: "none", effects: [{ label: target, state: "done", receipt }] }
    : { status: "failed", next_action: "none", effects: [] };
} catch {
  told = { status: "pending", next_action: "wait", effects: [] };
}
process.stdout.write(JSON.stringify(told) + "\n", () => process.exit(0));
