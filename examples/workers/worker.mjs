#!/usr/bin/env node
// A worker for Fermata's inbox, with Node's standard library only (Node 18 or newer).
//
//     node worker.mjs --server http://127.0.0.1:7070 --queue documents
//
// It claims tasks of a queue, calls `work` for each, renews the lease while `work` runs, and reports the result.
// Replace `work` with your own function. Several workers may share a queue: each task is held by one of them.

import { request } from "node:http";
import { request as secureRequest } from "node:https";
import { hostname } from "node:os";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const LEASE_SECONDS = 30;
const WAIT_SECONDS = 20;

/**
 * Returns new members of the state (or, for a decision, {outcome}). An error fails the attempt.
 * `task.state` is what the node sees, `task.idempotencyKey` is the same each time this attempt is delivered.
 * `report(progress)` shows progress in the inbox.
 */
async function work(task, report) {
  await report({ step: "started" });
  if (task.outcomes?.length) return { outcome: task.outcomes[0] };
  return { state: { [task.nodeId]: { doneBy: "node", keys: Object.keys(task.state).sort() } } };
}

const { values: given } = parseArgs({
  options: {
    server: { type: "string", default: process.env.FERMATA_SERVER ?? "http://127.0.0.1:7070" },
    queue: { type: "string" },
    worker: { type: "string", default: `${hostname()}-${process.pid}` },
    tasks: { type: "string", default: "0" },
  },
});
if (!given.queue) {
  console.error("--queue is missing; by default of a node it is the id of its workflow");
  process.exit(2);
}

/** Resolves to [status, answer]. Statuses below 500 are answers; the rest rejects and may be tried again. */
function post(path, body, timeout = 30_000) {
  const url = new URL(`${given.server.replace(/\/$/, "")}/api/v1/inbox${path}`);
  const send = url.protocol === "https:" ? secureRequest : request;
  return new Promise((resolve, reject) => {
    const call = send(url, { method: "POST", headers: { "content-type": "application/json" }, timeout }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part) => (text += part));
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode >= 500) return reject(new Error(`status ${response.statusCode}`));
        try {
          resolve([response.statusCode, JSON.parse(text)]);
        } catch (error) {
          reject(error);
        }
      });
    });
    call.on("timeout", () => call.destroy(new Error("timeout")));
    call.on("error", reject);
    call.end(JSON.stringify(body));
  });
}

/** Repeats a call while the server cannot be reached. An answer is stored once, so repeating it is safe. */
async function retry(call, attempts = 5) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await call();
    } catch (error) {
      if (attempt === attempts - 1) throw error;
      console.error(`the server does not answer, trying again: ${error.message}`);
      await sleep(Math.min(2 ** attempt, 10) * 1000);
    }
  }
}

async function handle(task) {
  const path = `/${encodeURIComponent(task.id)}`;
  const lease = { leaseId: task.leaseId };
  let lost = false;
  const heartbeat = async (progress) => {
    try {
      const [status] = await post(`${path}/heartbeat`, { ...lease, lease: `${LEASE_SECONDS}s`, progress });
      if (status !== 200) lost = true; // lapsed or closed: another worker may have the task, so stop
    } catch (error) {
      console.error(`heartbeat: ${error.message}`);
    }
  };
  const beating = setInterval(() => heartbeat(), (LEASE_SECONDS / 3) * 1000);
  let verb;
  let body;
  try {
    body = { ...lease, ...(await work(task, heartbeat)) };
    verb = "complete";
  } catch (error) {
    body = { ...lease, error: { code: error.name, message: error.message }, retriable: true };
    verb = "fail";
  } finally {
    clearInterval(beating);
  }
  if (lost) {
    console.error(`${task.id}: the lease was lost; the result is dropped`);
    return;
  }
  const [status, answer] = await retry(() => post(`${path}/${verb}`, body));
  if (status === 200) console.log(`${task.id}: ${verb}`);
  else console.error(`${task.id}: ${status} ${answer.error.code}: ${answer.error.message}`);
}

const claim = {
  queue: given.queue,
  worker: given.worker,
  lease: `${LEASE_SECONDS}s`,
  wait: `${WAIT_SECONDS}s`,
};
const wanted = Number(given.tasks);
for (let done = 0; wanted === 0 || done < wanted; ) {
  const [status, answer] = await retry(() => post("/claim", claim, (WAIT_SECONDS + 30) * 1000));
  if (status !== 200) {
    console.error(`the claim was refused: ${answer.error.message}`);
    process.exit(1);
  }
  for (const task of answer.items) {
    await handle(task);
    done += 1;
  }
}
