// SPDX-License-Identifier: MIT
// What if: a plan of a model under other wishes, made anew as they change. Only the last question counts: one that is
// on its way is given up.

import { get, pause } from "./api.js";
import { byId, bytes, count, el, poolName, setAttribute, setText, whenSeen } from "./dom.js";

const REST_MS = 300; // after the last key
const TYPES = ["f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"];
const FIELDS = { n_ctx: "plan-ctx", n_parallel: "plan-np", cache_type_k: "plan-ctk", cache_type_v: "plan-ctv", ram_budget: "plan-ram" };
const FLAGS = { "-c": "plan-ctx", "-np": "plan-np", "-ctk": "plan-ctk", "-ctv": "plan-ctv", "--ram-budget": "plan-ram" };
const VERDICTS = {
  fits: ["ok", "Fits", "All weights stay in memory."],
  streams: ["streams", "Fits, streamed", "Part of the weights is read from the file for each pass."],
  refused: ["refused", "Does not fit", ""],
  unknown: ["unknown", "Not known", ""],
};
const LINES = {
  base: "program", vocab: "vocabulary", metadata: "metadata", kv: "context (KV cache)", compute: "computing", pagetables: "page tables",
  threads: "threads", logits: "logits", output_norm: "output norm", embeddings: "embeddings", head: "output head",
  ring: "ring for streamed weights", pinned: "weights kept in memory", experts: "experts", derived: "rewritten weights", staging: "staging for reads",
};
const RUNGS = {
  minimum: "the least: weights are read for each pass", overlap: "reading while computing", head: "the output head stays, too",
  "all-pinned": "all weights stay in memory",
};
let asked = null;

const cell = (text) => el("td", { class: "n" }, text);

function table(title, heads, rows) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, el("table", {}, el("caption", {}, title),
    el("thead", {}, el("tr", {}, ...heads.map((text, i) => el("th", { scope: "col", class: i > 0 ? "n" : null }, text)))), el("tbody", {}, ...rows)));
}

function ledger(pool) {
  const lines = pool.lines.filter((line) => line.planned_bytes > 0).sort((a, b) => b.planned_bytes - a.planned_bytes);
  const rows = lines.map((line) => {
    const name = line.name.split("/").pop();
    return el("tr", {}, el("th", { scope: "row", title: line.name }, LINES[name] || name), cell(bytes(line.planned_bytes)), cell(line.source));
  });
  rows.push(el("tr", { class: "total" }, el("th", { scope: "row" }, "all of it"), cell(bytes(pool.planned_bytes)),
    cell(pool.budget_bytes === null ? "no budget" : `of ${bytes(pool.budget_bytes)}`)));
  return table(`${poolName(pool.name)}, line by line`, ["Line", "Planned", "Known by"], rows);
}

function ladder(plan) {
  const budget = plan.pools.find((pool) => pool.name === "host")?.budget_bytes ?? null;
  const rows = plan.ladder.map((rung) => el("tr", {}, el("th", { scope: "row" }, RUNGS[rung.what] || rung.what), cell(bytes(rung.budget_bytes)),
    cell(budget === null ? "" : rung.budget_bytes <= budget ? "yes" : "no"), cell(rung.tokens_per_s === null ? "not known" : rung.tokens_per_s.toFixed(1))));
  return table("What more memory buys", ["Step", "Memory", "In the budget", "Tokens/s, foreseen"], rows);
}

// "-ctk" with "q8_0 -ctv q8_0": one change may set several fields.
function apply(change) {
  const words = [change.flag, ...change.value.split(" ")];
  for (let i = 0; i + 1 < words.length; i += 2) if (FLAGS[words[i]]) byId(FLAGS[words[i]]).value = words[i + 1];
  byId("plan-model").focus();
  ask();
}

function refusal(told) {
  const items = told.changes.map((change) => el("li", {}, el("button", { type: "button", onclick: () => apply(change) }, `Try ${change.flag} ${change.value}`),
    el("span", { class: "quiet" }, `needs ${bytes(change.need_bytes)}`)));
  return [el("p", { class: "sentence" }, told.message), items.length > 0 ? el("p", {}, "Each of these alone would do:") : null,
    el("ul", { class: "changes" }, ...items)].filter(Boolean);
}

function showPlan(plan) {
  const [state, word, about] = VERDICTS[plan.verdict] || ["unknown", plan.verdict, ""];
  const totals = plan.pools.map((pool) => `${poolName(pool.name)}: ${bytes(pool.planned_bytes)}${pool.budget_bytes === null ? "" : ` of ${bytes(pool.budget_bytes)}`}`);
  const blocks = plan.blocks ? ` ${plan.blocks.pinned} of ${plan.blocks.total} blocks stay in memory.` : "";
  const parts = [el("p", { class: "verdict" }, el("span", { class: "chip", "data-state": state }, word), el("span", {}, totals.join(", ")))];
  if (plan.refusal) parts.push(...refusal(plan.refusal));
  else parts.push(el("p", { class: "sentence" }, `${about}${plan.verdict === "streams" ? blocks : ""} Context ${count(plan.ctx.effective)} of ${count(plan.ctx.trained)}.`));
  byId("plan-answer").replaceChildren(...parts);
  byId("plan-tables").replaceChildren(el("div", { class: "halves" }, el("div", {}, ...plan.pools.filter((pool) => pool.lines).map(ledger)), el("div", {}, ladder(plan))));
}

async function ask() {
  const model = byId("plan-model").value;
  if (!model) return;
  asked?.abort();
  const mine = (asked = new AbortController());
  await pause(REST_MS, mine.signal);
  if (mine.signal.aborted) return;
  const query = new URLSearchParams({ model });
  for (const [name, id] of Object.entries(FIELDS)) if (byId(id).value.trim()) query.set(name, byId(id).value.trim());
  setAttribute(byId("plan-answer"), "aria-busy", "true");
  try {
    let plan = null;
    for (let i = 0; plan === null; i++) {
      try {
        plan = await get(`api/plan?${query}`, mine.signal);
      } catch (error) {
        if (error.status !== 503 || i === 3) throw error;
        await pause(500, mine.signal); // others plan: so few at a time
      }
    }
    setText(byId("plan-error"), "");
    showPlan(plan);
  } catch (error) {
    if (mine.signal.aborted) return;
    setText(byId("plan-error"), error.message);
    byId("plan-answer").replaceChildren();
    byId("plan-tables").replaceChildren();
  }
  setAttribute(byId("plan-answer"), "aria-busy", "false");
}

export function beginPlan() {
  for (const id of ["plan-ctk", "plan-ctv"]) byId(id).append(...TYPES.map((type) => el("option", { value: type }, type)));
  byId("plan-form").addEventListener("input", ask);
  byId("plan-form").addEventListener("submit", (event) => event.preventDefault());
  whenSeen(byId("plan"), ask);
}
