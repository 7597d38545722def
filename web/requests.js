// SPDX-License-Identifier: MIT
// Requests: those on their way, and how the last ones ended.

import { byId, bytes, clock, count, duration, el, show } from "./dom.js";

const KEPT = 50;
let rows = [];

const rate = (n) => (n === null || n === undefined ? "" : n.toFixed(1));
const outcome = (row) => (row.outcome === "ok" ? "ok" : `${row.outcome}${row.code ? `: ${row.code}` : ""}`);

function tableRow(row) {
  const tokens = row.prompt_tokens === null && row.output_tokens === null ? "" : `${count(row.prompt_tokens || 0)}, ${count(row.output_tokens || 0)}`;
  return el("tr", { "data-id": row.id }, el("td", { class: "wide" }, clock(row.began_ms)), el("th", { scope: "row", title: row.path }, row.model || "none"),
    el("td", {}, el("span", { class: "chip", "data-state": row.outcome }, outcome(row))),
    el("td", { class: "n wide" }, duration(row.waited_ms)), el("td", { class: "n" }, duration(row.total_ms)),
    el("td", { class: "n wide" }, tokens), el("td", { class: "n" }, rate(row.output_tokens_per_s)));
}

function render() {
  byId("request-rows").replaceChildren(...rows.map(tableRow));
  show(byId("request-none"), rows.length === 0);
}

export function setRows(list) {
  rows = list.slice(0, KEPT);
  render();
}

const endOf = (row) => row.began_ms + row.total_ms;

// The latest end first. One may be told twice: in the list of before, and as an event.
export function addRow(row) {
  if (rows.some((one) => one.id === row.id)) return;
  let at = rows.findIndex((one) => endOf(one) <= endOf(row));
  if (at < 0) at = rows.length;
  if (at >= KEPT) return;
  rows.splice(at, 0, row);
  rows.length = Math.min(rows.length, KEPT);
  render();
}

export function showRunning(list) {
  byId("running-rows").replaceChildren(...list.map((one) => el("tr", {}, el("th", { scope: "row", title: one.path }, one.model || "not named yet"),
    el("td", {}, el("span", { class: "chip", "data-state": one.state }, one.state)), el("td", { class: "n" }, duration(one.age_ms)),
    el("td", { class: "n" }, bytes(one.sent_bytes)))));
  show(byId("running-none"), list.length === 0);
  show(byId("running-rows").closest(".scroll"), list.length > 0);
}
