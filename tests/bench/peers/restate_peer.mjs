// Restate: the ingress is given the business identifier as idempotency key, the effect is a `ctx.run`; the server as it
// comes from its package, with its log on disk. Called as the other drivers are, with BASELINES where it is installed.

import { spawn } from "node:child_process";
import { openSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";

const require = createRequire(path.join(process.env.BASELINES, "package.json"));
const restate = require("@restatedev/restate-sdk");
const [home, url, callers, effects] = process.argv.slice(2);
const READY_MS = 60_000;
const json = { "Content-Type": "application/json" };
// Kept connections, as many as there are callers.
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });

const freePort = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

async function until(what) {
  const end = Date.now() + READY_MS;
  for (;;) {
    try {
      if (await what()) return;
    } catch {}
    if (Date.now() > end) throw new Error("the server does not start");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function post(to, headers, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(to, { method: "POST", headers, agent }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => {
        const text = Buffer.concat(parts).toString();
        answer.statusCode < 300 ? resolve(text && JSON.parse(text)) : reject(new Error(`${answer.statusCode} ${text}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function send(key) {
  const body = JSON.stringify({ id: key, amount: 1200, memo: "from a peer", reference: key });
  return (await post(`${url}/v1/postings`, { ...json, "Idempotency-Key": key }, body)).id;
}

const [ingress, admin, node, service] = [await freePort(), await freePort(), await freePort(), await freePort()];
const binary = require.resolve("@restatedev/restate-server-linux-x64/bin/restate-server");
const log = openSync(path.join(home, "restate.log"), "a");
const server = spawn(binary, ["--no-logo"], {
  cwd: home,
  stdio: ["ignore", log, log],
  env: {
    PATH: process.env.PATH,
    HOME: home,
    RESTATE_BASE_DIR: path.join(home, "restate"),
    RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
    RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
    RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
    RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}`,
    RESTATE_DISABLE_TELEMETRY: "true",
  },
});
process.on("exit", () => server.kill("SIGKILL"));
await until(async () => (await fetch(`http://127.0.0.1:${admin}/health`)).ok);
await until(async () => (await fetch(`http://127.0.0.1:${ingress}/restate/health`)).ok);
const tool = restate.service({
  name: "tool",
  handlers: { act: async (ctx, wanted) => ctx.run("send", () => send(wanted.key)) },
});
await restate.serve({ services: [tool], port: service });
const deployment = JSON.stringify({ uri: `http://127.0.0.1:${service}`, force: true });
await until(async () => (await fetch(`http://127.0.0.1:${admin}/deployments`, { method: "POST", headers: json, body: deployment })).ok);

const act = (key) => post(`http://127.0.0.1:${ingress}/tool/act`, { ...json, "idempotency-key": key }, JSON.stringify({ key }));
await act("posting:warm");
let next = 0;
let done = 0;
async function caller() {
  while (next < Number(effects)) {
    await act(`posting:${next++}`);
    done += 1;
  }
}
const started = performance.now();
await Promise.all(Array.from({ length: Number(callers) }, caller));
const seconds = (performance.now() - started) / 1000;
process.stdout.write(JSON.stringify({ seconds, done }) + "\n", () => process.exit(0));
