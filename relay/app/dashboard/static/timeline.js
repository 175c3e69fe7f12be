// Draws the timeline and the columns as SVG; each has a table with the same data.
"use strict";
// One lane for each account, one bar for each session.
// Flags on top are notes and incidents. A click on a bar opens the session's report, as the table's links do.
Relay.lanes = (rows, width, flags) => {
  const given = new Map();
  for (const row of rows) given.set(row.account, (given.get(row.account) ?? 0) + row.seconds);
  const accounts = [...given.keys()].sort((a, b) => given.get(b) - given.get(a) || (a < b ? -1 : 1));
  const shown = accounts.slice(0, 40).sort();
  const narrow = width < 560;
  const left = narrow ? 4 : 150, lane = narrow ? 38 : 28, foot = 26, roof = flags.length ? 14 : 0;
  const from = Math.min(...rows.map((row) => row.started));
  const to = Math.max(...rows.map((row) => row.started + row.seconds), from + 60);
  const x = (moment) => left + (width - left - 8) * (moment - from) / (to - from);
  const height = roof + shown.length * lane + foot;
  const picture = Relay.svg("svg", { class: "lanes", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${Relay.counted(rows.length, "session")} of ${Relay.counted(accounts.length, "account")} from ${Relay.when(from)} to ${Relay.when(to)}; the table below tells each.` });
  // As many ticks as fit, at least a minute apart, because their labels show minutes.
  const ticks = Math.max(1, Math.min(6, Math.floor((width - left) / 130), Math.floor((to - from) / 60)));
  for (let tick = 0; tick <= ticks; tick += 1) {
    const moment = from + (to - from) * tick / ticks;
    const anchor = tick === 0 ? "start" : tick === ticks ? "end" : "middle";
    picture.append(
      Relay.svg("line", { x1: x(moment), x2: x(moment), y1: roof, y2: height - foot, class: "grid" }),
      Relay.svg("text", { x: x(moment), y: height - 8, "text-anchor": anchor, class: "tick" }, Relay.when(moment, to - from > 5 * 86400)));
  }
  shown.forEach((account, place) => {
    const name = Relay.label(account);
    const cut = narrow ? 44 : 20;
    picture.append(Relay.svg("text", { x: 0, y: roof + place * lane + (narrow ? 12 : 17), class: "name" }, name.length > cut ? `${name.slice(0, cut - 1)}…` : name));
  });
  for (const row of rows) {
    const place = shown.indexOf(row.account);
    if (place < 0) continue;
    const whole = !["killed", "fenced", "failed"].includes(row.kind);
    const top = roof + place * lane + (narrow ? 17 : 5), high = 16;
    const wide = Math.max(4, x(row.started + row.seconds) - x(row.started));
    const text = `Session ${row.epoch}, ${Relay.label(row.account)}, ${Relay.when(row.started)}, ${Relay.duration(row.seconds)}, steps ${Relay.int(row.from_step)} to ${Relay.int(row.to_step)}: ${Relay.words[row.kind]}`;
    const bar = Relay.svg("rect", { x: x(row.started), y: whole ? top : top + high / 2, width: wide, height: whole ? high : high / 2, rx: 2, class: `bar end-${row.kind}` },
      Relay.svg("title", {}, text));
    bar.addEventListener("click", () => { location.hash = `session-${row.epoch}`; });
    picture.append(bar);
  }
  for (const flag of flags.filter((one) => one.time >= from && one.time <= to)) {
    const at = x(flag.time);
    picture.append(Relay.svg("path", { d: `M${at - 5} 1h10l-5 10z`, class: `flag-${flag.kind}` }, Relay.svg("title", {}, `${Relay.when(flag.time)}: ${flag.text}`)));
  }
  const rest = accounts.length - shown.length;
  return rest > 0 ? Relay.el("div", {}, picture, Relay.el("p", { class: "quiet" }, `${Relay.counted(rest, "more account")} in the table.`)) : picture;
};

// Three to six evenly spaced numbers from 0, none beyond the largest value.
Relay.marks = (most) => {
  const ten = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2].map((each) => each * ten).find((each) => most / each < 5);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, place) => Number((place * step).toPrecision(6)));
};

// One column for each of the newest sessions, one color for each GPU. value(row): null leaves the session out.
Relay.columns = (data, width, title, value, word) => {
  const rows = data.sessions.filter((row) => value(row) !== null).slice(-Math.max(20, Math.floor(width / 9)));
  if (!rows.length) return null;
  const kinds = data.gpus.map((gpu) => gpu.name);
  const colour = (gpu) => `gpu-${Math.max(0, kinds.indexOf(gpu)) % 6}`;
  const height = 150, foot = 20, left = 52;
  const most = Math.max(...rows.map(value)) || 1;
  const step = (width - left) / rows.length, broad = Math.min(40, Math.max(1, step - 2));
  const y = (number) => (height - foot) - (height - foot - 12) * number / most;
  const picture = Relay.svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${title} for the newest ${rows.length} sessions, up to ${word(most)}; the table of sessions lists each.` });
  for (const mark of Relay.marks(most)) {
    picture.append(Relay.svg("line", { x1: left, x2: width, y1: y(mark), y2: y(mark), class: "grid" }),
      Relay.svg("text", { x: left - 6, y: y(mark) + 4, "text-anchor": "end", class: "tick" }, word(mark)));
  }
  rows.forEach((row, place) => {
    const bar = Relay.svg("rect", { x: left + place * step, y: y(value(row)), width: broad, height: height - foot - y(value(row)), class: `bar ${colour(row.gpu)}` },
      Relay.svg("title", {}, `Session ${row.epoch}, ${Relay.label(row.account)}, ${row.gpu ?? "GPU unknown"}: ${word(value(row))}`));
    bar.addEventListener("click", () => { location.hash = `session-${row.epoch}`; });
    picture.append(bar);
  });
  const named = (row, x, anchor) => picture.append(
    Relay.svg("text", { x, y: height - 4, "text-anchor": anchor, class: "tick" }, `session ${row.epoch}`));
  named(rows[0], left, "start");
  if (rows.length > 1) named(rows[rows.length - 1], left + (rows.length - 1) * step + broad, "end");
  const present = [...new Set(rows.map((row) => row.gpu))];
  return Relay.el("figure", {}, Relay.el("figcaption", {}, title), picture,
    Relay.legend(present.map((gpu) => [colour(gpu), gpu ?? "GPU unknown"])));
};
