// Creates elements and text for the page; text never becomes markup.
"use strict";
const Relay = { state: { axis: "step", log: false, smooth: 0, zoom: null, who: "", end: "", range: "", open: {} } };

Relay.el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  Relay.attributes(node, attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

Relay.svg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Relay.attributes(node, attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

Relay.attributes = (node, attributes) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
};

Relay.words = {
  open: "training", reached: "target reached", planned: "handed off", stopped: "stopped by its person",
  killed: "killed", fenced: "lost its lease", failed: "failed",
};

Relay.unknown = "unknown";

Relay.int = (value) => (value === null || value === undefined ? Relay.unknown : Math.round(value).toLocaleString("en"));

Relay.number = (value) => {
  if (value === null || value === undefined) return Relay.unknown;
  return Math.abs(value) >= 1000 ? Relay.int(value) : String(Number(value.toPrecision(4)));
};

Relay.counted = (value, what) => `${Relay.int(value)} ${what}${value === 1 ? "" : "s"}`;

Relay.share = (value, digits = 1) =>
  value === null || value === undefined ? Relay.unknown : `${(100 * value).toFixed(digits)} %`;

Relay.duration = (seconds) => {
  if (seconds === null || seconds === undefined) return Relay.unknown;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
};

Relay.size = (bytes) => {
  if (bytes === null || bytes === undefined) return Relay.unknown;
  for (const [unit, word] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"]]) {
    if (bytes >= unit) return `${(bytes / unit).toFixed(1)} ${word}`;
  }
  return `${Math.round(bytes / 1e3)} kB`;
};

// In the reader's time zone.
Relay.when = (moment, day = false) => {
  if (moment === null || moment === undefined) return Relay.unknown;
  const form = { month: "short", day: "numeric", ...(day ? {} : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }) };
  return new Date(1000 * moment).toLocaleString("en", form);
};

Relay.time = (moment, day = false) => {
  if (moment === null || moment === undefined) return Relay.unknown;
  return Relay.el("time", { datetime: new Date(1000 * moment).toISOString() }, Relay.when(moment, day));
};

// The store's clock now: its last reading plus the time since then.
Relay.now = () => Relay.data.now + (performance.now() - Relay.received) / 1000;

Relay.ago = (moment) =>
  Relay.el("span", { "data-since": moment }, `${Relay.duration(Relay.now() - moment)} ago`);

Relay.label = (account) => Relay.names.get(account) ?? account ?? Relay.unknown;

Relay.fill = (id, ...children) => document.getElementById(id).replaceChildren(...children.flat().filter(Boolean));

// A summary that stays open or closed when the page is redrawn; its content is created when it is opened.
Relay.details = (key, title, make) => {
  const box = Relay.el("details", {}, Relay.el("summary", {}, title));
  const draw = () => {
    Relay.state.open[key] = box.open;
    if (box.open && box.children.length === 1) box.append(make());
  };
  if (Relay.state.open[key]) {
    box.open = true;
    draw();
  }
  box.addEventListener("toggle", draw);
  return box;
};

// columns: [title, cell(row), numeric?]. A region that also scrolls by keyboard, with the first rows and a button for all.
Relay.table = (key, caption, columns, rows, most = 12) => {
  const body = Relay.el("tbody");
  const show = (some) => body.replaceChildren(...some.map((row) =>
    Relay.el("tr", {}, columns.map(([, cell, numeric], place) =>
      Relay.el(place ? "td" : "th", { class: numeric ? "num" : null, scope: place ? null : "row" }, cell(row))))));
  const heads = columns.map(([title, , numeric]) => Relay.el("th", { scope: "col", class: numeric ? "num" : null }, title));
  const table = Relay.el("table", {}, Relay.el("caption", {}, caption), Relay.el("thead", {}, Relay.el("tr", {}, heads)), body);
  const region = Relay.el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  const all = Relay.state.open[key] || rows.length <= most;
  show(all ? rows : rows.slice(0, most));
  if (all) return region;
  const button = Relay.el("button", { type: "button" }, `Show all ${rows.length.toLocaleString("en")}`);
  button.addEventListener("click", () => {
    Relay.state.open[key] = true;
    show(rows);
    button.remove();
    region.focus();
  });
  return Relay.el("div", {}, region, button);
};

Relay.facts = (pairs) =>
  Relay.el("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) =>
    Relay.el("div", {}, Relay.el("dt", {}, name), Relay.el("dd", {}, ...value))));
