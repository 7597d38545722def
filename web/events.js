// SPDX-License-Identifier: MIT
// What has happened, each in a sentence with its numbers.

import { ago, announce, bytes, byId, clock, count, duration, el, listed, setText, show, sum } from "./dom.js";

const KEPT = 200;
const SHOWN = 8;
let rows = [];
let all = false;
let newest = null;

const memoryOf = (name) => (name === "host" ? "host memory" : name);
const sizes = (object) => listed(Object.entries(object || {}).map(([name, n]) => `${bytes(n)} of ${memoryOf(name)}`));

function holders(pool, without) {
  const held = Object.entries(pool.held || {}).filter(([id]) => id !== without);
  if (held.length === 0) return "nobody else holds any";
  return listed(held.map(([id, n]) => `${id} holds ${bytes(n)}`));
}

// The pool that a decision is about: where most is asked for.
function poolOf(data) {
  const asked = sum(data.need_bytes) > 0 ? data.need_bytes : data.reserved_bytes;
  const name = Object.entries(asked || {}).sort((a, b) => b[1] - a[1])[0]?.[0] || "host";
  return (data.pools || []).find((pool) => pool.name === name) || { name, held: {} };
}

function decisionWords(data) {
  const pool = poolOf(data);
  const limit = pool.limit_bytes ? `, of ${bytes(pool.limit_bytes)} for all models` : "";
  const need = data.need_bytes?.[pool.name];
  const given = data.reserved_bytes?.[pool.name];
  const waited = data.waited_ms >= 1000 ? ` It had waited ${duration(data.waited_ms)}.` : "";
  if (data.decision === "admit" && data.victims.length > 0) {
    const freed = data.victims.reduce((n, id) => n + (pool.held?.[id] || 0), 0);
    const were = data.victims.length > 1 ? "were" : "was";
    const less = data.shrunk && given ? `, and starts with ${bytes(given)}, which is less than it asks for` : "";
    return `${listed(data.victims)} ${were} unloaded for ${data.model}: ${data.victims.length > 1 ? "they" : "it"} held ${bytes(freed)} of ${memoryOf(pool.name)}${limit}, and ${data.model} needs ${need ? bytes(need) : "an unknown amount"}${less}.${waited}`;
  }
  if (data.decision === "admit") {
    const less = data.shrunk && need ? `, less than the ${bytes(need)} that it asks for` : "";
    return `${data.model} was given ${sizes(data.reserved_bytes) || "no memory"}${less}${limit}; ${holders(pool, data.model)}.${waited}`;
  }
  if (data.decision === "refuse")
    return `${data.model} was refused: it needs ${need ? `${bytes(need)} of ${memoryOf(pool.name)}` : "more than can be had"}, and models may have ${pool.limit_bytes ? bytes(pool.limit_bytes) : "what is free"} together; ${holders(pool, data.model)}.`;
  if (data.decision === "drain")
    return `${listed(data.victims)} takes nothing new, because ${data.model} has waited ${duration(data.waited_ms)} for ${need ? bytes(need) : "its memory"}.`;
  if (data.decision === "ceiling") {
    const of = memoryOf(data.pool);
    if (!data.trusted) return `What others take of ${of} is not known, and the budget stands${data.reason ? `: ${data.reason}` : "."}`;
    if (data.ceiling_bytes !== null && (data.limit_bytes === null || data.ceiling_bytes < data.limit_bytes))
      return `Other programs take ${bytes(data.excess_bytes)} more of ${of} than at rest: models may have ${bytes(data.ceiling_bytes)}${data.limit_bytes === null ? "" : ` of their ${bytes(data.limit_bytes)}`} now.`;
    return `Models may have their whole budget of ${of} again.`;
  }
  if (data.decision === "shed") {
    const why = `other programs need ${memoryOf(data.pool)}, ${bytes(data.over_bytes)} too much is held, and ${bytes(data.free_bytes)} are free`;
    return data.victims.length > 0 ? `${listed(data.victims)} ${data.victims.length > 1 ? "go" : "goes"}: ${why}.` : `No model may go, and ${why}.`;
  }
  if (data.decision === "growth") {
    const until = data.left_tokens === null ? "" : ` At this pace that is full after ${count(data.left_tokens)} more.`;
    return `${data.model} holds ${bytes(data.grown_bytes)} more of ${memoryOf(data.pool)} than ${count(data.tokens)} tokens ago, and grows with each.${until}`;
  }
  if (data.decision === "resume") return `${data.model} goes on: nobody waits for its memory any more.`;
  return `${data.decision}: ${data.model}`;
}

function words(event) {
  const data = event.data;
  if (event.type === "decision") return decisionWords(data);
  if (event.type === "model" && data.state === "failed") return data.reason?.startsWith(`${data.model} `) ? data.reason : `${data.model} failed: ${data.reason}`;
  if (event.type === "model") return `${data.model} is ${data.state}${data.reason ? `: ${data.reason}` : ""}`;
  if (event.type === "config") return "The configuration was read anew.";
  if (event.type === "dropped") return `${data.n} events were missed.`;
  return null;
}

const stateOf = (event) => (event.type === "decision" ? event.data.decision : event.type === "model" ? event.data.state : event.type);

function render() {
  const shown = all ? rows : rows.slice(0, SHOWN);
  byId("event-list").replaceChildren(...shown.map((row) => row.node));
  show(byId("event-none"), rows.length === 0);
  show(byId("event-more"), rows.length > SHOWN);
  setText(byId("event-more"), all ? "Show the last ones" : `Show all ${rows.length}`);
}

export function forgetEvents() {
  rows = [];
  newest = null;
  render();
}

export function addEvent(event, isOld) {
  const text = words(event);
  if (text === null) return;
  const node = el("li", { class: event.type === "decision" ? "decision" : null },
    el("time", { datetime: new Date(event.time_ms).toISOString() }, clock(event.time_ms)),
    el("span", { class: "mark", "data-state": stateOf(event), "aria-hidden": "true" }), el("span", {}, text));
  rows.unshift({ node });
  rows.length = Math.min(rows.length, KEPT);
  const isState = event.type === "model" && ["ready", "failed", "stopped"].includes(event.data.state);
  if (event.type === "decision" || (isState && event.data.state === "failed")) newest = { text, time: event.time_ms, then: "" };
  else if (isState && newest) newest.then = `Then: ${text}`;
  if (!isOld && (isState || event.type === "decision")) announce(text);
  if (!isOld) render();
}

export function showLast() {
  setText(byId("glance-last"), newest ? newest.text : "Nothing yet");
  setText(byId("glance-when"), newest ? [ago(newest.time), newest.then].filter(Boolean).join(". ") : "");
}

export function beginEvents() {
  byId("event-more").addEventListener("click", () => {
    all = !all;
    render();
  });
}
export const renderEvents = render;
