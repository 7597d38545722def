// SPDX-License-Identifier: MIT
// A card for each model: what it is now, what it takes and how that is known, what can be done with it.

import { encoded, post } from "./api.js";
import { announce, bytes, byId, count, el, setAttribute, setText, show } from "./dom.js";
import { colourOf } from "./memory.js";

const SOURCES = {
  priced: "priced from its file and command",
  declared: "as the configuration says",
  budget: "its own budget",
  learned: "as measured in former runs",
  unknown: "not known",
};
const FIND_FROM = 9; // so many models need a field to find one
const GLANCE_MAX = 4;

export const isLoaded = (model) => model.state === "ready" || model.state === "draining";
const isIdle = (model) => model.state === "stopped" || model.state === "failed";

const perPool = (object) => {
  const names = Object.keys(object || {});
  if (names.length === 0) return "none";
  return names.map((name) => (name === "host" && names.length === 1 ? bytes(object[name]) : `${bytes(object[name])} of ${name}`)).join(", ");
};

class Card {
  constructor(id, chat) {
    this.id = id;
    this.name = el("h3", {}, el("span", { class: `dot ${colourOf(id)}` }), el("span", {}, id));
    this.state = el("p", { class: "chip" });
    this.about = el("p", { class: "quiet about" });
    this.facts = {};
    const list = el("dl");
    for (const [key, title] of [["need", "Needs"], ["reserved", "Promised"], ["measured", "Used"], ["requests", "Requests"]]) {
      this.facts[key] = el("dd");
      list.append(el("div", {}, el("dt", {}, title), this.facts[key]));
    }
    this.source = el("p", { class: "quiet" });
    this.guard = el("p", { class: "quiet" });
    this.refusal = el("p", { class: "warning" });
    this.error = el("p", { class: "error" });
    this.turn = el("button", { type: "button", onclick: () => this.toggle() });
    this.chat = el("button", { type: "button", "aria-label": `Chat with ${id}`, onclick: () => chat(id) }, "Chat");
    this.node = el("li", { class: "card" }, el("div", { class: "head" }, this.name, this.state), this.about, list, this.source,
      this.guard, this.refusal, this.error, el("div", { class: "row" }, this.turn, this.chat));
    this.loads = false;
  }

  async toggle() {
    const path = this.unloads ? "unload" : "load";
    setText(this.error, "");
    this.loads = path === "load";
    this.update();
    try {
      await post(`api/models/${path}/${encoded(this.id)}`);
    } catch (error) {
      setText(this.error, error.message);
      announce(error.message);
    }
    this.loads = false;
    this.update();
  }

  update(model = this.model, meta = this.meta) {
    this.model = model;
    this.meta = meta;
    const state = this.loads && isIdle(model) ? "waiting" : model.state;
    this.unloads = !isIdle(model);
    setText(this.state, state);
    setAttribute(this.state, "data-state", state);
    const about = [];
    if (meta?.architecture) about.push(meta.architecture);
    if (meta?.n_params) about.push(`${(meta.n_params / 1e6).toFixed(meta.n_params < 1e9 ? 0 : 1)} M parameters`.replace(/(\d+)\.(\d) M/, (_, a) => `${(Number(a) / 1000).toFixed(1)} B`));
    if (meta?.n_ctx) about.push(`context ${count(meta.n_ctx)}${meta.n_ctx_train && meta.n_ctx_train !== meta.n_ctx ? ` of ${count(meta.n_ctx_train)}` : ""}`);
    if (meta?.size) about.push(`${bytes(meta.size)} on disk`);
    setText(this.about, about.join(" · "));
    setText(this.facts.need, perPool(model.need_bytes));
    setText(this.facts.reserved, perPool(model.reserved_bytes));
    setText(this.facts.measured, perPool(model.measured_bytes));
    const requests = [[model.running, "running"], [model.waiting, "waiting"]].filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`);
    setText(this.facts.requests, requests.join(", ") || "none");
    const notes = [`The need is ${SOURCES[model.need_from] || model.need_from}.`];
    if (model.need_from === "unknown") notes[0] = "What it needs is not known: it gets all there is.";
    if (model.persistent) notes.push("Never unloaded for others.");
    if (model.shrunk) notes.push("Started with less than it asks for.");
    if (model.streams) notes.push("Part of its weights is read for each pass.");
    setText(this.source, notes.join(" "));
    setText(this.guard, model.guard ? `Guard: ${model.guard}` : "");
    setText(this.refusal, model.last_refusal && isIdle(model) && model.last_refusal.message !== this.error.textContent ? `Last refused: ${model.last_refusal.message}` : "");
    for (const node of [this.about, this.guard, this.refusal, this.error]) show(node, node.textContent !== "");
    setText(this.turn, this.unloads ? "Unload" : "Load");
    setAttribute(this.turn, "aria-label", `${this.unloads ? "Unload" : "Load"} ${this.id}`);
  }
}

const cards = new Map();

function find() {
  const wanted = byId("models-find").value.trim().toLowerCase();
  for (const card of cards.values()) show(card.node, card.id.toLowerCase().includes(wanted));
}

export function showModels(models, metas, chat) {
  const list = byId("model-list");
  for (const model of models) {
    if (!cards.has(model.model)) {
      cards.set(model.model, new Card(model.model, chat));
      list.append(cards.get(model.model).node);
    }
    cards.get(model.model).update(model, metas.get(model.model));
  }
  for (const [id, card] of cards) {
    if (models.some((model) => model.model === id)) continue;
    card.node.remove();
    cards.delete(id);
  }
  show(byId("models-filter"), cards.size >= FIND_FROM);
  find();
  glance(models);
}

function doing(model) {
  if (!isLoaded(model)) return model.state;
  if (model.running + model.waiting > 0) return [[model.running, "running"], [model.waiting, "waiting"]].filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`).join(", ");
  return model.idle_ms >= 1000 ? `idle for ${model.idle_ms < 60000 ? `${Math.floor(model.idle_ms / 1000)} s` : `${Math.floor(model.idle_ms / 60000)} min`}` : "idle";
}

// For the first look: which are there, or nearly, and what they do.
let glanced = "";
function glance(models) {
  const here = models.filter((model) => !isIdle(model));
  const n = here.filter(isLoaded).length;
  setText(byId("glance-loaded"), n === 0 ? "No model" : `${n} of ${models.length} models`);
  const rows = here.slice(0, GLANCE_MAX).map((model) => [colourOf(model.model), model.model, doing(model)]);
  if (here.length > GLANCE_MAX) rows.push(["", "", `and ${here.length - GLANCE_MAX} more`]);
  if (glanced === JSON.stringify(rows)) return;
  glanced = JSON.stringify(rows);
  byId("glance-models").replaceChildren(...rows.map(([colour, id, words]) => el("li", {}, el("span", { class: `dot ${colour}` }), el("strong", {}, id), ` ${words}`)));
}

export const beginModels = () => byId("models-find").addEventListener("input", find);
