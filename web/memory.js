// SPDX-License-Identifier: MIT
// Each memory: who holds how much of it now, and how that went.
//
// A model's part is solid as far as it was measured, and pale for what is promised to it beyond that. Two scales: of the
// budget (what models may have together), or of the whole machine (others and what is free, too).

import { bytes, el, poolName, setAttribute, setText, svg } from "./dom.js";

const WINDOW_MS = 300000; // kept and shown at most
const SHORT_MS = 60000; // shown at least
const HEIGHT = 150;
const LEFT = 66;
const FOOT = 20;
const N_COLOURS = 8;
const pools = new Map();
const colours = new Map();

export function colourOf(id) {
  if (!colours.has(id)) colours.set(id, `c${colours.size % N_COLOURS}`);
  return colours.get(id);
}

// What is known of one pool at one moment.
function momentOf(pool, models) {
  const parts = [];
  for (const model of models) {
    const reserved = model.reserved_bytes[pool.name] || 0;
    const measured = model.measured_bytes[pool.name] ?? null;
    if (reserved > 0 || measured > 0) parts.push({ id: model.model, reserved, measured, used: measured ?? 0, state: model.state });
  }
  const used = parts.reduce((all, part) => all + part.used, 0);
  // What is going is promised to others already.
  for (const part of parts) if (part.state === "stopping") part.reserved = 0;
  const reserved = parts.reduce((all, part) => all + (part.state === "stopping" ? 0 : Math.max(part.reserved, part.used)), 0);
  const router = pool.router_bytes || 0;
  let foreign = pool.foreign_bytes ?? null;
  if (foreign === null && pool.total_bytes !== null && pool.free_bytes !== null)
    foreign = Math.max(0, pool.total_bytes - pool.free_bytes - used - router);
  return { time: Date.now(), parts, used, reserved, router, foreign, free: pool.free_bytes ?? null,
    limit: pool.limit_bytes ?? null, ceiling: ceilingOf(pool), total: pool.total_bytes ?? null };
}

// What others leave of the budget, where that is less.
function ceilingOf(pool) {
  const ceiling = pool.ceiling_bytes ?? null;
  return ceiling !== null && (pool.limit_bytes === null || ceiling < pool.limit_bytes) ? ceiling : null;
}

const WATCHDOG = {
  pressed: "Other programs need memory that models hold: idle models go soon if that lasts.",
  cooling: "A model has just gone for other programs.",
};

function notesOf(pool) {
  const notes = [];
  if (pool.state !== "reported") notes.push(`${pool.state}: ${pool.reason || "nothing is known of it"}.`);
  if (ceilingOf(pool) !== null) notes.push(`Other programs take ${bytes(pool.excess_bytes)} more than at rest: models may have ${bytes(pool.ceiling_bytes)} now.`);
  if (pool.trusted === false && pool.state === "reported" && pool.ceiling_reason) notes.push(`What other programs take is not known: ${pool.ceiling_reason}.`);
  if (WATCHDOG[pool.watchdog]) notes.push(WATCHDOG[pool.watchdog]);
  return notes.join(" ");
}

class Pool {
  constructor(name) {
    this.name = name;
    this.moments = [];
    this.whole = null; // the scale; null: not chosen yet
    this.title = el("h3", {}, poolName(name));
    this.words = el("p", { class: "sentence" });
    this.reason = el("p", { class: "warning" });
    this.scale = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.turn() }, "Whole machine");
    this.bar = svg("svg", { class: "stack", width: "100%", height: 28, role: "img" });
    this.rows = el("tbody");
    this.chart = svg("svg", { class: "chart", width: "100%", height: HEIGHT + FOOT, role: "img" });
    this.caption = el("p", { class: "quiet" });
    this.history = el("tbody");
    this.details = el("details", { ontoggle: () => this.drawHistory() }, el("summary", {}, "The chart as a table"),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${poolName(name)} over time` },
        el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Time"),
          ...["Used by models", "Promised to models", "Others", "Free"].map((text) => el("th", { scope: "col", class: "n" }, text)))),
        this.history)));
    const holders = el("table", { class: "holders" },
      el("caption", { class: "unseen" }, `Who holds what of ${poolName(name)}`),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Holder"), el("th", { scope: "col", class: "n" }, "Used"),
        el("th", { scope: "col", class: "n" }, "Promised"))), this.rows);
    this.node = el("div", { class: "pool" }, el("div", { class: "head" }, this.title, this.scale), this.words, this.reason,
      this.bar, el("div", { class: "split" }, holders, el("div", { class: "over-time" },
        this.caption, this.chart, this.details)));
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  turn() {
    this.whole = !this.whole;
    this.draw();
  }

  add(pool, models) {
    const now = momentOf(pool, models);
    this.moments.push(now);
    while (this.moments[0].time < now.time - WINDOW_MS - 2000) this.moments.shift();
    const bounded = now.limit !== null && now.total !== null && now.limit < 0.7 * now.total;
    if (this.whole === null) this.whole = !bounded;
    this.scale.hidden = now.total === null || now.limit === null;
    setText(this.reason, notesOf(pool));
    this.reason.hidden = this.reason.textContent === "";
    this.draw();
  }

  top(now) {
    if (this.whole && now.total !== null) return now.total;
    return Math.max(now.limit ?? 0, ...this.moments.map((m) => Math.max(m.reserved, m.used)), 1);
  }

  draw() {
    const now = this.moments[this.moments.length - 1];
    if (!now || !this.node.isConnected) return;
    setAttribute(this.scale, "aria-pressed", String(this.whole));
    const most = now.ceiling ?? now.limit;
    const of = most === null ? "" : ` of ${bytes(most)}`;
    const left = most === null ? "" : `, ${bytes(Math.max(0, most - now.reserved))} left for other models`;
    const words = `${bytes(now.reserved)}${of} promised to models, ${bytes(now.used)} used${left}.`;
    setText(this.words, words);
    this.drawBar(now, words);
    this.drawHolders(now);
    this.drawChart(now);
    this.drawHistory();
  }

  drawBar(now, words) {
    const width = this.bar.clientWidth || this.node.clientWidth;
    const scale = width / this.top(now);
    const shapes = [];
    let x = 0;
    const piece = (size, kind) => {
      const w = size * scale;
      if (w > 0) shapes.push(svg("rect", { class: kind, x: x.toFixed(1), y: 0, width: Math.max(1, w - 2).toFixed(1), height: 28, rx: 3 }));
      x += w;
    };
    for (const part of now.parts) {
      const begin = x;
      piece(Math.max(part.reserved, part.used), `${colourOf(part.id)} pale`);
      if (part.used > 0)
        shapes.push(svg("rect", { class: colourOf(part.id), x: begin.toFixed(1), y: 0, width: Math.max(1, part.used * scale - 2).toFixed(1), height: 28, rx: 3 }));
    }
    if (this.whole) {
      if (now.router) piece(now.router, "router");
      if (now.foreign) piece(now.foreign, "foreign");
    }
    if (now.limit !== null) {
      const at = Math.min(width - 1.5, now.limit * scale);
      shapes.push(svg("line", { class: "limit", x1: at, x2: at, y1: 0, y2: 28 }));
    }
    if (now.ceiling !== null) shapes.push(svg("line", { class: "ceiling", x1: now.ceiling * scale, x2: now.ceiling * scale, y1: 0, y2: 28 }));
    this.bar.replaceChildren(svg("rect", { class: "ground", x: 0, y: 0, width, height: 28, rx: 3 }), ...shapes);
    setAttribute(this.bar, "aria-label", `${poolName(this.name)}: ${words}`);
  }

  drawHolders(now) {
    const swatch = (kind) => svg("svg", { class: "swatch", width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { class: kind, width: 14, height: 14, rx: 3 }));
    const row = (kind, name, used, reserved) =>
      el("tr", {}, el("th", { scope: "row" }, el("span", { class: "named" }, swatch(kind), el("span", {}, name))), el("td", { class: "n" }, used), el("td", { class: "n" }, reserved));
    const rows = now.parts.map((part) =>
      row(colourOf(part.id), part.id, part.measured === null ? "not measured" : bytes(part.measured), part.state === "stopping" ? "going" : bytes(part.reserved)));
    if (rows.length === 0) rows.push(row("ground", "no model", bytes(0), bytes(0)));
    if (now.router) rows.push(row("router", "the router", bytes(now.router), "its own"));
    if (now.foreign !== null) rows.push(row("foreign", "other programs", bytes(now.foreign), ""));
    if (now.free !== null) rows.push(row("ground", "free in the machine", bytes(now.free), ""));
    const signature = rows.map((one) => one.textContent).join("|");
    if (this.signature === signature) return;
    this.signature = signature;
    this.rows.replaceChildren(...rows);
  }

  drawChart(now) {
    const width = this.chart.clientWidth;
    if (width < 120) return;
    const top = this.top(now) * 1.06;
    const span = Math.min(WINDOW_MS, Math.max(SHORT_MS, now.time - this.moments[0].time));
    const x = (time) => LEFT + (width - LEFT - 4) * (1 - (now.time - time) / span);
    const y = (size) => HEIGHT - (HEIGHT - 8) * Math.min(1, size / top);
    const moments = this.moments.filter((m) => m.time >= now.time - span);
    const shapes = [];
    for (const share of [0, 0.5, 1]) {
      const size = this.top(now) * share;
      shapes.push(svg("line", { class: "grid", x1: LEFT, x2: width - 4, y1: y(size), y2: y(size) }),
        svg("text", { x: LEFT - 6, y: y(size) + 4, "text-anchor": "end" }, bytes(Math.round(size)).replace(".00", "").replace(".0", "")));
    }
    const there = new Set(moments.flatMap((m) => m.parts.map((part) => part.id)));
    const ids = [...colours.keys()].filter((id) => there.has(id)); // as in the bar
    const layers = ids.map((id) => ({ kind: colourOf(id), of: (m) => m.parts.find((part) => part.id === id)?.used || 0 }));
    if (this.whole) layers.push({ kind: "router", of: (m) => m.router }, { kind: "foreign", of: (m) => m.foreign || 0 });
    const base = moments.map(() => 0);
    for (const layer of layers) {
      const over = moments.map((m, i) => `${x(m.time).toFixed(1)},${y(base[i] + layer.of(m)).toFixed(1)}`);
      const under = moments.map((m, i) => `${x(m.time).toFixed(1)},${y(base[i]).toFixed(1)}`).reverse();
      moments.forEach((m, i) => (base[i] += layer.of(m)));
      shapes.push(svg("polygon", { class: layer.kind, points: [...over, ...under].join(" ") }));
    }
    const line = (kind, of) => {
      const points = moments.filter((m) => of(m) !== null).map((m) => `${x(m.time).toFixed(1)},${y(of(m)).toFixed(1)}`);
      if (points.length > 0) shapes.push(svg("polyline", { class: kind, points: points.join(" ") }));
    };
    line("promised", (m) => m.reserved);
    line("limit", (m) => m.limit);
    const pressed = moments.some((m) => m.ceiling !== null);
    if (pressed) line("ceiling", (m) => m.ceiling ?? m.limit);
    setText(this.caption, `Over time. Area: used. Dashed line: promised. Solid line: limit.${pressed ? " Dotted: what others leave of it." : ""}`);
    shapes.push(svg("text", { x: LEFT, y: HEIGHT + 15 }, `${Math.round(span / 60000)} min ago`), svg("text", { x: width - 4, y: HEIGHT + 15, "text-anchor": "end" }, "now"));
    this.chart.replaceChildren(...shapes);
    const most = Math.max(...moments.map((m) => m.used));
    setAttribute(this.chart, "aria-label", `Used by models in the last minutes: at most ${bytes(most)}, now ${bytes(now.used)}`);
  }

  drawHistory() {
    if (!this.details.open) return;
    const rows = [];
    let next = Infinity;
    for (const m of [...this.moments].reverse()) {
      if (m.time > next) continue;
      next = m.time - 30000;
      rows.push(el("tr", {}, el("th", { scope: "row" }, new Date(m.time).toLocaleTimeString([], { hour12: false })),
        ...[m.used, m.reserved, m.foreign, m.free].map((n) => el("td", { class: "n" }, n === null ? "" : bytes(n)))));
    }
    this.history.replaceChildren(...rows);
  }
}

// A small bar for the first look.
function glance(pool, models) {
  const now = momentOf(pool, models);
  const of = now.ceiling ?? now.limit ?? now.total;
  const share = of ? Math.min(1, now.reserved / of) : 0;
  return el("div", { class: "glance-pool" },
    el("p", { class: "big" }, bytes(now.reserved), el("span", {}, of ? ` of ${bytes(of)}` : "")),
    svg("svg", { class: "meter", width: "100%", height: 8, "aria-hidden": "true" }, svg("rect", { class: "ground", width: "100%", height: 8, rx: 4 }),
      svg("rect", { class: share > 0.9 ? "full" : "part", width: `${(share * 100).toFixed(1)}%`, height: 8, rx: 4 })),
    el("p", { class: "quiet" }, `${poolName(pool.name)}${of ? `, ${Math.round(share * 100)} %` : ""}`));
}

export function showMemory(told, place, small) {
  for (const model of told.models) colourOf(model.model);
  for (const pool of told.pools) {
    if (!pools.has(pool.name)) {
      pools.set(pool.name, new Pool(pool.name));
      place.append(pools.get(pool.name).node);
    }
    pools.get(pool.name).add(pool, told.models);
  }
  for (const [name, pool] of pools) {
    if (told.pools.some((one) => one.name === name)) continue;
    pool.node.remove();
    pools.delete(name);
  }
  small.replaceChildren(...told.pools.filter((pool) => pool.limit_bytes !== null || pool.total_bytes !== null).map((pool) => glance(pool, told.models)));
}
