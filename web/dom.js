// SPDX-License-Identifier: MIT
// Elements, and numbers as people read them. Text only ever becomes text: nothing here parses markup.

export const byId = (id) => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Only what has changed, so that nothing flickers and a selection stays.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

// A list of options that is written anew only when it has changed; the choice stays when it still can.
export function setOptions(select, options) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options === wanted) return;
  const chosen = select.value;
  select.dataset.options = wanted;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

// As burthen itself writes sizes.
export function bytes(n) {
  if (n === null || n === undefined) return "not known";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = n;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(unit > 2 ? 2 : 1)} ${units[unit]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
  return `${Math.floor(ms / 3600000)} h ${Math.round((ms % 3600000) / 60000)} min`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
export const count = (n) => Number(n).toLocaleString("en");
export const sum = (object) => Object.values(object || {}).reduce((all, n) => all + n, 0);
export const poolName = (name) => (name === "host" ? "Host memory" : name);

export function ago(ms) {
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return `${Math.floor(seconds / 3600)} h ago`;
}

// "a", "a and b", "a, b and c"
export function listed(names) {
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

// Once, when somebody can see it: what costs the router something is not asked for in vain.
export function whenSeen(node, begin) {
  const watcher = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watcher.disconnect();
    begin();
  });
  watcher.observe(node);
}

// State changes in words, for those who do not see them. What comes together is said together.
let said = [];
export function announce(text) {
  said.push(text);
  if (said.length > 1) return;
  setTimeout(() => {
    byId("live").textContent = said.slice(-4).join(". ");
    said = [];
  }, 700);
}
