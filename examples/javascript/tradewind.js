// A worker for Tradewind, as described in docs/stubs.md: it registers node types, opens a Work stream, runs its assignments
// and reports how they ended, across lost connections and restarts of the servers.

import {randomUUID} from "node:crypto";
import {hostname} from "node:os";
import {setTimeout as sleep} from "node:timers/promises";
import {fileURLToPath} from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const LONGEST_MS = 2 ** 31 - 1; // of a timer of Node.js; the server stops nodes that run longer
const PROTOS = fileURLToPath(new URL("../../protos", import.meta.url));
const {registry, node_task_manager: nodeTaskManager} = grpc.loadPackageDefinition(
  protoLoader.loadSync(
    [
      "tradewind/api/registry/v1/registry_service.proto",
      "tradewind/api/node_task_manager/v1/node_task_manager_service.proto",
    ],
    {includeDirs: [PROTOS], longs: Number, enums: String, defaults: true},
  ),
).tradewind.api;

const PAUSE_MS = 500; // before opening another stream, or calling the registry again
const KEPT_MS = 10_000; // how long an acknowledged outcome is kept, in case a resync asks for it
const RESYNCED_MS = 5_000; // how far back a resync reports again
const CALL_MS = 10_000;
const NOTES_MS = 20; // how long log lines and progress wait for others to go with
const MOST_NOTES = 100; // in one message, so that it stays well below 4 MiB
const LARGEST_OUTPUTS = 3 * 1024 * 1024; // a message over 4 MiB would end the stream, and again when it is sent again
const PROGRESS_CHARACTERS = 1024; // of texts for people, which the server cuts as well, if they reach it
const ERROR_CHARACTERS = 4 * 1024;
const TYPE_CHARACTERS = 128;
const LOG_CHARACTERS = 8 * 1024;
const TRACEBACK_CHARACTERS = 16 * 1024;
const LEAVING_MS = 5_000; // how long to wait for the last acknowledgement
const CHANNEL = {"grpc.keepalive_time_ms": 5_000, "grpc.keepalive_timeout_ms": 3_000};

// Runs `nodes`, {type: {inputs, outputs, run}}, up to `capacity` node tasks at a time. `run(args, context)` returns, or promises,
// an object with a value for each output handle that it emits. `context.signal` tells a node to stop.
export class Worker {
  #nodes;
  #registry;
  #stub;
  #metadata = new grpc.Metadata();
  #self;
  #tasks = new Map(); // by token: {assignment, controller, outcome, sequence, acknowledgedAt}
  #stream = null; // the current Work stream
  #sequence = 0;
  #acknowledged = 0; // the number of the last message that the server has handled, on this stream
  #notes = {logs: [], progress: []}; // of nodes, to be sent
  #noting; // the timer that sends them
  #leaving = false; // no more node tasks are taken
  #left = false;
  #graceMs;

  constructor({nodes, address = "localhost:7700", id = `${hostname()}-${process.pid}`, capacity = 10, graceMs = 10_000, token}) {
    this.#nodes = nodes;
    this.#graceMs = graceMs;
    if (token) this.#metadata.set("authorization", `Bearer ${token}`);
    const credentials = grpc.credentials.createInsecure();
    this.#registry = new registry.v1.RegistryService(address, credentials, CHANNEL);
    this.#stub = new nodeTaskManager.v1.NodeTaskManagerService(address, credentials, CHANNEL);
    this.#self = {
      workerId: id,
      incarnation: randomUUID(),
      nodeTypes: Object.keys(nodes),
      capacity,
      host: hostname(),
      pid: process.pid,
      sdk: "example-javascript",
    };
  }

  // Works until `leave` is called; rejects when another process has taken its id, or a server refuses this worker.
  async run() {
    let beating;
    try {
      const beats = await this.#register();
      beating = setInterval(() => this.#beat().catch((error) => console.error(`no heartbeat: ${error.message}`)), beats);
      while (!this.#left) {
        await this.#work();
        if (!this.#left) await sleep(PAUSE_MS);
      }
    } finally {
      clearInterval(beating);
      await this.#call("deregisterWorker", {workerId: this.#self.workerId, incarnation: this.#self.incarnation}).catch(() => {});
      this.#registry.close();
      this.#stub.close();
    }
  }

  // Takes no more node tasks, waits for the running ones, stops the rest and gives them back; then `run` ends.
  async leave() {
    if (this.#leaving) return;
    this.#leaving = true;
    const stream = this.#stream;
    const farewell = this.#send({draining: true, renew: true, heldTokens: this.#held()});
    const told = this.#running().length ? this.#beat().catch(() => {}) : undefined;
    // Until this is acknowledged, node tasks may be on their way.
    await this.#until(() => this.#stream !== stream || this.#acknowledged >= farewell, LEAVING_MS);
    await this.#until(() => this.#running().length === 0, this.#graceMs);
    const given = this.#running();
    for (const token of given) {
      this.#tasks.get(token).controller.abort(new Error("the worker leaves"));
      this.#tasks.delete(token);
    }
    this.#sendNotes();
    if (given.length) this.#send({giveBackTokens: given});
    await this.#until(() => [...this.#tasks.values()].every((task) => task.acknowledgedAt), LEAVING_MS);
    await told; // a heartbeat after the end would list the worker again
    this.#left = true;
    if (this.#stream?.welcomed) this.#stream.end();
    else this.#stream?.cancel();
  }

  async #register() {
    const nodeTypes = Object.entries(this.#nodes).map(([type, {inputs = [], outputs = []}]) => ({
      type,
      configSchemaJson: textOf(configSchemaOf(inputs)),
      inputs: inputs.map(({name, schema, required, gather}) => ({name, schemaJson: textOf(schema), required, gather})),
      outputs: outputs.map(({name, schema}) => ({name, schemaJson: textOf(schema)})),
    }));
    while (!this.#left) {
      try {
        const answer = await this.#call("registerWorker", {worker: this.#self, nodeTypes});
        return msOf(answer.heartbeatInterval);
      } catch (error) {
        if (!isPassing(error)) throw error;
        console.error(`cannot reach the registry, trying again: ${error.message}`);
        await sleep(PAUSE_MS);
      }
    }
  }

  async #beat() {
    const answer = await this.#call("heartbeat", {worker: {...this.#self, running: this.#running().length}, draining: this.#leaving});
    if (answer.registerAgain) await this.#register();
    if (answer.drain) await this.leave();
  }

  #call(method, request) {
    return new Promise((resolve, reject) => {
      const options = {deadline: Date.now() + CALL_MS};
      this.#registry[method](request, this.#metadata, options, (error, answer) => (error ? reject(error) : resolve(answer)));
    });
  }

  // Works on one stream until it ends.
  #work() {
    return new Promise((resolve, reject) => {
      const stream = (this.#stream = this.#stub.work(this.#metadata));
      let renewing;
      stream.on("data", (message) => {
        if (message.welcome) {
          stream.welcomed = true;
          renewing = setInterval(() => this.#renew(), msOf(message.welcome.renewInterval));
          for (const task of this.#tasks.values()) if (task.outcome && !task.acknowledgedAt) this.#report(task);
          if (this.#leaving) this.#send({draining: true});
        }
        this.#take(message, stream);
      });
      stream.on("error", () => {}); // the status event follows
      stream.on("status", (status) => {
        clearInterval(renewing);
        this.#stream = null;
        if (status.code === grpc.status.OK || isPassing(status)) resolve();
        else reject(new Error(`the node task manager refuses this worker: ${status.details}`));
      });
      const {workerId, incarnation, nodeTypes, capacity} = this.#self;
      const offers = nodeTypes.map((nodeType) => ({nodeType, outputs: (this.#nodes[nodeType].outputs ?? []).map(({name}) => name)}));
      this.#sequence = 1;
      this.#acknowledged = 0;
      stream.write({hello: {workerId, incarnation, nodeTypes, capacity, heldTokens: this.#held(), offers}, sequence: 1});
    });
  }

  #take(message, stream) {
    if (message.acknowledgedSequence) this.#acknowledge(message.acknowledgedSequence);
    for (const {token} of message.losses) {
      this.#tasks.get(token)?.controller.abort(new Error("the lease is lost"));
      this.#tasks.delete(token);
    }
    for (const assignment of message.assignments) this.#begin(assignment, message.sentAt);
    if (message.assignments.length) setTimeout(() => this.#renew(), 1000);
    for (const {token, stop, grace} of message.terminations) this.#stop(token, new Error(stop?.reason || "asked to stop"), msOf(grace));
    if (message.ping) this.#send({pong: message.ping});
    if (message.resync) this.#resync();
    if (message.reconnect) stream.end();
  }

  #acknowledge(sequence) {
    this.#acknowledged = sequence;
    const now = Date.now();
    for (const [token, task] of this.#tasks) {
      if (task.sequence && task.sequence <= sequence) task.acknowledgedAt ??= now;
      if (task.acknowledgedAt && now - task.acknowledgedAt > KEPT_MS) this.#tasks.delete(token);
    }
  }

  // The store may have lost its last second, so recent outcomes are reported again.
  #resync() {
    this.#renew();
    const since = Date.now() - RESYNCED_MS;
    for (const task of this.#tasks.values()) if (task.outcome && task.endedAt >= since) this.#report(task);
  }

  // The tokens that are running, or whose end is not acknowledged yet.
  #held() {
    return [...this.#tasks].filter(([, task]) => !task.acknowledgedAt).map(([token]) => token);
  }

  #running() {
    return [...this.#tasks].filter(([, task]) => !task.outcome).map(([token]) => token);
  }

  #renew() {
    const heldTokens = this.#held();
    if (heldTokens.length) this.#send({renew: true, heldTokens});
  }

  // Returns the number of the message, 0 when there is no stream to send it on.
  #send(message) {
    if (!this.#stream?.welcomed) return 0;
    this.#sequence += 1;
    this.#stream.write({...message, sequence: this.#sequence});
    return this.#sequence;
  }

  // Gathers what nodes say: a message for each line would keep those that renew the leases waiting.
  #note(kind, note) {
    this.#notes[kind].push(note);
    if (this.#notes[kind].length === MOST_NOTES) this.#sendNotes();
    else this.#noting ??= setTimeout(() => this.#sendNotes(), NOTES_MS);
  }

  #sendNotes() {
    clearTimeout(this.#noting);
    this.#noting = undefined;
    const notes = this.#notes;
    this.#notes = {logs: [], progress: []};
    if (notes.logs.length || notes.progress.length) this.#send(notes);
  }

  #report(task) {
    this.#sendNotes(); // once the end is stored, no line is
    task.sequence = this.#send(task.outcome);
  }

  async #begin(assignment, sentAt) {
    const {token} = assignment;
    const known = this.#tasks.get(token);
    if (known?.acknowledgedAt) this.#report(known); // the store has lost its end
    if (known) return;
    const task = {assignment, controller: new AbortController(), sequence: 0};
    this.#tasks.set(token, task);
    const began = performance.now();
    let deadline;
    if (assignment.deadline) {
      const left = timeOf(assignment.deadline) - timeOf(sentAt); // by the server's clock, since this machine's may be wrong
      if (left <= LONGEST_MS) deadline = setTimeout(() => this.#stop(token, new TimedOut(`it ran for ${left} ms`), 1000), left);
    }
    let outcome;
    try {
      if (assignment.startIn) await sleep(msOf(assignment.startIn), undefined, {signal: task.controller.signal});
      const outputs = await Promise.race([this.#execute(task), stopped(task)]);
      outcome = {completions: [{token, outputs: outputsOf(outputs), traceparent: assignment.traceparent}]};
    } catch (error) {
      outcome = {failures: [this.#failure(task, error)]};
    } finally {
      clearTimeout(deadline);
    }
    if (this.#tasks.get(token) !== task) return; // its lease was lost or given back
    const duration = durationOf(performance.now() - began);
    for (const each of [...(outcome.completions ?? []), ...(outcome.failures ?? [])]) each.duration = duration;
    task.outcome = outcome;
    task.endedAt = Date.now();
    this.#report(task);
  }

  async #execute({assignment, controller}) {
    const {token} = assignment;
    const {run, inputs = []} = this.#nodes[assignment.nodeType];
    const gathering = new Set(inputs.filter(({gather}) => gather).map(({name}) => name));
    const given = assignment.inputs.map(({handle, valuesJson}) => {
      const values = valuesJson.map((text) => JSON.parse(text));
      return [handle, gathering.has(handle) ? values : values[0]];
    });
    const args = {
      ...withSecrets(JSON.parse(assignment.configJson || "{}")),
      ...JSON.parse(assignment.runInputsJson || "{}"),
      ...Object.fromEntries(given),
    };
    return run(args, {
      signal: controller.signal,
      flowId: assignment.flowId,
      cycle: assignment.cycle,
      attempt: assignment.attempt,
      idempotencyKey: idempotencyKeyOf(assignment),
      progress: (progress, message = "") => this.#note("progress", {token, progress, message: cut(message, PROGRESS_CHARACTERS)}),
      log: (message, level = "INFO") => this.#note("logs", {token, level, message: cut(message, LOG_CHARACTERS)}),
    });
  }

  #failure({assignment, controller}, error) {
    const asked = controller.signal.aborted ? controller.signal.reason : null;
    const {message = String(error), name = "Error", stack = ""} = asked ?? error ?? {};
    return {
      token: assignment.token,
      error: {
        code: asked instanceof TimedOut ? "TIMEOUT" : error instanceof TooLarge ? "OUTPUT_TOO_LARGE" : "NODE_ERROR",
        message: cut(message, ERROR_CHARACTERS),
        type: asked ? "" : cut(name, TYPE_CHARACTERS),
        traceback: cut(stack, TRACEBACK_CHARACTERS),
      },
      terminated: asked !== null && !(asked instanceof TimedOut),
      nonRetryable: Boolean(error?.fatal),
      traceparent: assignment.traceparent,
    };
  }

  // Tells a node to stop; if it still runs after its grace, its end is reported without it, and its result is dropped.
  #stop(token, reason, graceMs) {
    const task = this.#tasks.get(token);
    if (!task || task.outcome) return;
    task.graceMs = graceMs;
    task.controller.abort(reason);
  }

  async #until(isSo, ms) {
    const end = Date.now() + ms;
    while (!isSo() && Date.now() < end) await sleep(20);
  }
}

class TimedOut extends Error {}

class TooLarge extends Error {}

// Rejects when a stop's grace is over.
function stopped(task) {
  const {signal} = task.controller;
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => setTimeout(() => reject(signal.reason), task.graceMs ?? 0));
  });
}

// Tells whether an error is temporary, so that trying again makes sense.
function isPassing({code, metadata}) {
  const details = metadata?.get("grpc-status-details-bin")[0];
  if (details?.includes("SESSION_REPLACED")) return false;
  return ![grpc.status.INVALID_ARGUMENT, grpc.status.UNAUTHENTICATED, grpc.status.PERMISSION_DENIED, grpc.status.UNIMPLEMENTED].includes(code);
}

// The same text for every attempt, whatever number the cycle has: `<run_id>:<node_id>[:<item>]`.
function idempotencyKeyOf({flowId, nodeTaskId, runId}) {
  return flowId ? [runId, ...nodeTaskId.split(":").slice(3)].join(":") : `${nodeTaskId}:${runId}`;
}

function outputsOf(outputs) {
  const emitted = Object.entries(outputs ?? {})
    .filter(([, value]) => value !== undefined)
    .map(([handle, value]) => ({handle, valueJson: JSON.stringify(value)}));
  const size = emitted.reduce((sum, {valueJson}) => sum + Buffer.byteLength(valueJson), 0);
  if (size > LARGEST_OUTPUTS) throw new TooLarge(`the outputs have ${size} bytes in total: store them elsewhere, and emit where`);
  return emitted;
}

// Replaces each {"$secret": name} by the environment variable TRADEWIND_SECRET_<NAME>.
function withSecrets(value) {
  if (Array.isArray(value)) return value.map(withSecrets);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.$secret === "string") {
    const name = `TRADEWIND_SECRET_${value.$secret.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")}`;
    if (!(name in process.env)) throw new Error(`the secret "${value.$secret}" is missing: set ${name}`);
    return process.env[name];
  }
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withSecrets(each)]));
}

// A config may have a value for each of the parameters, and nothing else.
function configSchemaOf(inputs) {
  return {type: "object", properties: Object.fromEntries(inputs.map(({name, schema = {}}) => [name, schema])), additionalProperties: false};
}

// By way of bytes, since a message with half a character is no valid message.
const cut = (text, most) => Buffer.from(String(text).slice(0, most)).toString();
const textOf = (schema) => (schema ? JSON.stringify(schema) : "");
const msOf = (duration) => (duration ? duration.seconds * 1000 + duration.nanos / 1e6 : 0);
const timeOf = (timestamp) => timestamp.seconds * 1000 + timestamp.nanos / 1e6;
const durationOf = (ms) => ({seconds: Math.floor(ms / 1000), nanos: Math.round((ms % 1000) * 1e6)});
